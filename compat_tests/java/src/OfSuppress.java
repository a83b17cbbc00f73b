import java.time.Duration;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.Windowed;

/** Suppress, by windows and by time. */
final class OfSuppress {
    private static final Duration LIMIT = Duration.ofMillis(10);

    private OfSuppress() {}

    static void add() {
        Topologies.dsl("suppress_tumbling", b -> OfWindows.texts(
            tumbling(b).suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))));
        Topologies.dsl("suppress_session", b -> OfWindows.texts(
            OfStreams.in(b).groupByKey(texts()).windowedBy(OfWindows.SESSION).count()
                .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))));
        Topologies.dsl("suppress_windows_until_full", b -> OfWindows.texts(tumbling(b).suppress(
            Suppressed.untilWindowCloses(BufferConfig.maxRecords(3).shutDownWhenFull()))));
        Topologies.dsl("suppress_time", b -> limited(b, BufferConfig.unbounded()));
        Topologies.dsl("suppress_time_records", b -> limited(b, BufferConfig.maxRecords(2).emitEarlyWhenFull()));
        Topologies.dsl("suppress_time_bytes", b -> limited(b, BufferConfig.maxBytes(200).emitEarlyWhenFull()));
        Topologies.dsl("suppress_time_until_full", b -> limited(b, BufferConfig.maxRecords(2).shutDownWhenFull()));
        Topologies.dsl("suppress_time_unlogged", b -> limited(b, BufferConfig.unbounded().withLoggingDisabled()));
        Topologies.dsl("suppress_no_time", OfSuppress::noTime);
        Topologies.dsl("suppress_named", OfSuppress::named);
    }

    private static KTable<Windowed<String>, Long> tumbling(StreamsBuilder builder) {
        return OfStreams.in(builder).groupByKey(texts()).windowedBy(OfWindows.TUMBLING).count();
    }

    /** Suppress takes no default serde for the key in a window. */
    private static Grouped<String, String> texts() {
        return Grouped.with(Topologies.TEXT, Topologies.TEXT);
    }

    private static void limited(StreamsBuilder builder, BufferConfig<?> bound) {
        OfTables.in(builder).suppress(Suppressed.untilTimeLimit(LIMIT, bound)).toStream().to("out");
    }

    private static void noTime(StreamsBuilder builder) {
        OfTables.in(builder).suppress(Suppressed.untilTimeLimit(Duration.ZERO, BufferConfig.unbounded()))
            .groupBy(OfTables::byLetter).count().toStream().to("out", Topologies.longs());
    }

    private static void named(StreamsBuilder builder) {
        OfStreams.in(builder).groupByKey().count()
            .suppress(Suppressed.<String>untilTimeLimit(LIMIT, BufferConfig.unbounded()).withName("held"))
            .groupBy((k, v) -> KeyValue.pair("n" + v % 2, k), texts())
            .reduce(OfStreams::append, (a, v) -> a + "-").toStream().to("out");
    }
}
