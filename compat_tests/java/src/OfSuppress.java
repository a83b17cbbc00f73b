import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Suppress, by windows and by time. */
final class OfSuppress {
    private static final Duration LIMIT = Duration.ofMillis(10);

    private OfSuppress() {}

    static void add() {
        Topologies.dsl("suppress_tumbling", b -> OfWindows.texts(
            tumbling(b).suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))));
        Topologies.dsl("suppress_hopping", b -> OfWindows.texts(
            OfStreams.in(b).groupByKey(texts()).windowedBy(OfWindows.HOPPING).count()
                .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))));
        Topologies.dsl("suppress_sliding", b -> OfWindows.texts(
            OfStreams.in(b).groupByKey(texts()).windowedBy(OfWindows.SLIDING).count()
                .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))));
        Topologies.dsl("suppress_session", b -> OfWindows.texts(
            OfStreams.in(b).groupByKey(texts()).windowedBy(OfWindows.SESSION).count(sessions())
                .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))));
        Topologies.dsl("suppress_windows_rekeyed", OfSuppress::windowsRekeyed);
        Topologies.dsl("suppress_windows_mapped", OfSuppress::windowsMapped);
        Topologies.dsl("suppress_windows_named", b -> OfWindows.texts(tumbling(b).suppress(
            Suppressed.untilWindowCloses(BufferConfig.maxBytes(10_000_000).shutDownWhenFull()).withName("held"))));
        Topologies.dsl("suppress_windows_joined", OfSuppress::windowsJoined);
        Topologies.dsl("suppress_windows_until_full", b -> OfWindows.texts(tumbling(b).suppress(
            Suppressed.untilWindowCloses(BufferConfig.maxRecords(3).shutDownWhenFull()))));
        Topologies.dsl("suppress_time", b -> limited(b, BufferConfig.unbounded()));
        Topologies.dsl("suppress_time_records", b -> limited(b, BufferConfig.maxRecords(2).emitEarlyWhenFull()));
        Topologies.dsl("suppress_time_bytes", b -> limited(b, BufferConfig.maxBytes(72).emitEarlyWhenFull()));
        Topologies.dsl("suppress_time_until_full", b -> limited(b, BufferConfig.maxRecords(2).shutDownWhenFull()));
        Topologies.dsl("suppress_time_unlogged", b -> limited(b, BufferConfig.unbounded().withLoggingDisabled()));
        Topologies.dsl("suppress_time_both_bounds",
            b -> limited(b, BufferConfig.maxRecords(3).withMaxBytes(110).emitEarlyWhenFull()));
        Topologies.dsl("suppress_time_bytes_until_full", b -> limited(b, BufferConfig.maxBytes(110).shutDownWhenFull()));
        Topologies.dsl("suppress_time_headers_of_others", OfSuppress::twoTopics);
        Topologies.dsl("suppress_time_filtered", OfSuppress::filtered);
        Topologies.dsl("suppress_time_twice", OfSuppress::twice);
        Topologies.dsl("suppress_time_kept", OfSuppress::kept);
        Topologies.dsl("suppress_time_joined", OfSuppress::joined);
        Topologies.dsl("suppress_time_joined_with_stream", OfSuppress::joinedWithStream);
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

    /** A retention beyond all inputs: a cache of Kafka Streams still has windows whose retention is over. */
    private static Materialized<String, Long, SessionStore<Bytes, byte[]>> sessions() {
        return Materialized.<String, Long, SessionStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.LONG)
            .withRetention(OfWindows.LONG);
    }

    private static Materialized<String, Long, WindowStore<Bytes, byte[]>> windows() {
        return Materialized.<String, Long, WindowStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.LONG)
            .withRetention(OfWindows.LONG);
    }

    private static void windowsRekeyed(StreamsBuilder builder) {
        OfWindows.texts(OfStreams.in(builder)
            .groupBy((k, v) -> v, Grouped.with("by-value", Topologies.TEXT, Topologies.TEXT))
            .windowedBy(OfWindows.TUMBLING).count()
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())));
    }

    private static void windowsMapped(StreamsBuilder builder) {
        OfWindows.texts(tumbling(builder).filter((k, v) -> v % 2 == 0).mapValues(v -> "n" + v)
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
            .filterNot((k, v) -> v.equals("n4")));
    }

    private static void windowsJoined(StreamsBuilder builder) {
        KTable<Windowed<String>, Long> left = builder.<String, String>stream("left").groupByKey(texts())
            .windowedBy(OfWindows.TUMBLING).count(windows());
        KTable<Windowed<String>, Long> right = builder.<String, String>stream("right").groupByKey(texts())
            .windowedBy(TimeWindows.ofSizeAndGrace(OfWindows.SIZE, Duration.ofMillis(8))).count(windows());
        OfWindows.texts(left.outerJoin(right, (l, r) -> l + "&" + r)
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())));
    }

    private static void twoTopics(StreamsBuilder builder) {
        builder.<String, String>stream("left").merge(builder.stream("right")).groupByKey(texts())
            .aggregate(OfStreams::initial, OfStreams::aggregate)
            .suppress(Suppressed.untilTimeLimit(LIMIT, BufferConfig.unbounded())).toStream().to("out");
    }

    private static void filtered(StreamsBuilder builder) {
        OfTables.in(builder).filter((k, v) -> !v.startsWith("b")).mapValues(v -> v + "!")
            .suppress(Suppressed.untilTimeLimit(LIMIT, BufferConfig.unbounded()))
            .filter((k, v) -> v.length() < 3).toStream().to("out");
    }

    private static void twice(StreamsBuilder builder) {
        OfTables.in(builder).suppress(Suppressed.untilTimeLimit(LIMIT, BufferConfig.maxRecords(2)))
            .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(3), BufferConfig.unbounded())).toStream().to("out");
    }

    private static void kept(StreamsBuilder builder) {
        OfTables.in(builder).suppress(Suppressed.untilTimeLimit(LIMIT, BufferConfig.unbounded()))
            .mapValues(v -> v + "!", Topologies.texts("kept"))
            .groupBy(OfTables::byLetter, texts()).reduce(OfStreams::append, (a, v) -> a + "-").toStream().to("out");
    }

    private static void joined(StreamsBuilder builder) {
        KTable<String, String> left = builder.<String, String>table("left").mapValues(v -> v + "!")
            .suppress(Suppressed.untilTimeLimit(LIMIT, BufferConfig.unbounded()));
        KTable<String, String> right = builder.<String, String>table("right")
            .suppress(Suppressed.untilTimeLimit(LIMIT, BufferConfig.maxRecords(2).emitEarlyWhenFull()));
        left.outerJoin(right, OfStreamJoins::both).toStream().to("out");
    }

    private static void joinedWithStream(StreamsBuilder builder) {
        KTable<String, String> right = builder.<String, String>table("right")
            .suppress(Suppressed.<String>untilTimeLimit(LIMIT, BufferConfig.unbounded()).withName("held"))
            .filter((k, v) -> !v.startsWith("b"));
        builder.<String, String>stream("left").leftJoin(right, OfStreamJoins::both).to("out");
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
