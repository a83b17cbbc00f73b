import java.time.Duration;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** Windows, sessions and joins on Kafka Streams, and the plain count beside them. `work`: which one. */
public final class Windows {
    record Sale(long id, long amount, String text) {}

    record Short(long id, long amount) {}

    record Met(long sale, long other) {}

    private static final long WINDOW_MS = 60_000;
    private static final Duration GAP = Duration.ofMillis(10_000);
    private static final Duration WITHIN = Duration.ofMillis(10_000);
    private static final Duration GRACE = Duration.ofMillis(10_000);
    private static final Duration ADVANCE = Duration.ofMillis(15_000);
    private static final TimeWindows MINUTES = TimeWindows.ofSizeAndGrace(Duration.ofMillis(WINDOW_MS), GRACE);
    private static final Serde<Sale> SALES = Peer.json(Sale.class);
    private static final Serde<Met> MET = Peer.json(Met.class);
    private static final Consumed<String, Sale> CONSUMED = Consumed.with(Serdes.String(), SALES);

    public static void main(String[] arguments) {
        Map<String, String> job = Peer.job(arguments);
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Sale> sales = builder.stream(job.get("input"), CONSUMED);
        String other = job.get("input") + "-other";
        String output = job.get("output");
        switch (job.get("work")) {
            case "stateless" -> sales
                .filter((key, sale) -> sale.amount() % 10 > 0)
                .mapValues(sale -> new Short(sale.id(), sale.amount()))
                .to(output, Produced.with(Serdes.String(), Peer.json(Short.class)));
            case "count" -> count(sales.groupByKey(), output);
            case "tumbling" -> tumbling(sales.groupByKey(), output);
            case "hopping" -> hopping(sales.groupByKey(), output);
            case "suppress" -> suppress(sales.groupByKey(), output);
            case "sessions" -> sessions(sales.groupByKey(), output);
            case "table-join" -> sales
                .join(builder.table(other, CONSUMED, Materialized.as("customers")), Windows::met,
                    Joined.with(Serdes.String(), SALES, SALES))
                .to(output, Produced.with(Serdes.String(), MET));
            case "stream-join" -> sales
                .join(builder.stream(other, CONSUMED), Windows::met,
                    JoinWindows.ofTimeDifferenceAndGrace(WITHIN, GRACE),
                    StreamJoined.with(Serdes.String(), SALES, SALES))
                .to(output, Produced.with(Serdes.String(), MET));
            default -> throw new IllegalArgumentException(job.get("work"));
        }
        Peer.streams(builder.build(), Peer.settings(job)).start();
    }

    private static Met met(Sale sale, Sale other) {
        return new Met(sale.id(), other.id());
    }

    private static void count(KGroupedStream<String, Sale> sales, String output) {
        sales.count(Materialized.as("totals")).toStream().to(output, Produced.with(Serdes.String(), Serdes.Long()));
    }

    private static void tumbling(KGroupedStream<String, Sale> sales, String output) {
        put(sales.windowedBy(MINUTES).count(Materialized.as("totals")), output);
    }

    private static void hopping(KGroupedStream<String, Sale> sales, String output) {
        put(sales.windowedBy(MINUTES.advanceBy(ADVANCE)).count(Materialized.as("totals")), output);
    }

    private static void suppress(KGroupedStream<String, Sale> sales, String output) {
        put(sales.windowedBy(MINUTES).count(Materialized.as("totals"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())), output);
    }

    private static void put(KTable<Windowed<String>, Long> counts, String output) {
        counts.toStream().to(output, Produced.with(
            WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW_MS), Serdes.Long()));
    }

    private static void sessions(KGroupedStream<String, Sale> sales, String output) {
        sales.windowedBy(SessionWindows.ofInactivityGapAndGrace(GAP, GRACE))
            .count(Materialized.as("totals"))
            .toStream()
            .to(output, Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.Long()));
    }
}
