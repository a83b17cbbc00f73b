import java.util.Map;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** The count on Kafka Streams: count and sum per key, one output per record. Arguments: name=value, see job.py. */
public final class Count {
    record Sale(long id, long amount, String text) {}

    record Total(long count, long sum) {}

    public static void main(String[] arguments) {
        Map<String, String> job = Peer.job(arguments);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.get("input"), Consumed.with(Serdes.String(), Peer.json(Sale.class)))
            .groupByKey()
            .aggregate(
                () -> new Total(0, 0),
                (key, sale, total) -> new Total(total.count() + 1, total.sum() + sale.amount()),
                Materialized.<String, Total, KeyValueStore<Bytes, byte[]>>as("totals")
                    .withKeySerde(Serdes.String())
                    .withValueSerde(Peer.json(Total.class)))
            .toStream()
            .to(job.get("output"), Produced.with(Serdes.String(), Peer.json(Total.class)));
        Peer.streams(builder.build(), Peer.settings(job)).start();
    }
}
