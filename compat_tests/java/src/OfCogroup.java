import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Several streams in one table. The topics are `left` and `right`. */
final class OfCogroup {
    private OfCogroup() {}

    static void add() {
        Topologies.dsl("cogroup", b -> cogrouped(b).aggregate(OfStreams::initial).toStream().to("out"));
        Topologies.dsl("cogroup_one", b -> grouped(b, "left").cogroup(OfStreams::aggregate)
            .aggregate(OfStreams::initial).toStream().to("out"));
        Topologies.dsl("cogroup_three", b -> cogrouped(b).cogroup(grouped(b, "third"), OfCogroup::third)
            .aggregate(OfStreams::initial, Named.as("three")).toStream().to("out"));
        Topologies.dsl("cogroup_rekeyed", OfCogroup::rekeyed);
        Topologies.dsl("cogroup_all_rekeyed", OfCogroup::allRekeyed);
        Topologies.dsl("cogroup_uncached", b -> cogrouped(b).aggregate(OfStreams::initial,
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.TEXT)
                .withCachingDisabled().withLoggingDisabled()).toStream().to("out"));
        Topologies.dsl("cogroup_twice", OfCogroup::twice);
        Topologies.dsl("cogroup_regrouped", b -> cogrouped(b).aggregate(OfStreams::initial)
            .groupBy(OfTables::byLetter).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("cogroup_joined", b -> cogrouped(b).aggregate(OfStreams::initial)
            .outerJoin(b.<String, String>table("third"), OfStreamJoins::both).toStream().to("out"));
        Topologies.dsl("cogroup_tumbling", b -> OfWindows.texts(
            cogrouped(b).windowedBy(OfWindows.TUMBLING).aggregate(OfStreams::initial, windows())));
        Topologies.dsl("cogroup_hopping", b -> OfWindows.texts(
            cogrouped(b).windowedBy(OfWindows.HOPPING).aggregate(OfStreams::initial, windows())));
        Topologies.dsl("cogroup_sliding", b -> OfWindows.texts(
            cogrouped(b).windowedBy(OfWindows.SLIDING).aggregate(OfStreams::initial, windows())));
        Topologies.dsl("cogroup_unlimited", b -> OfWindows.texts(
            cogrouped(b).windowedBy(UnlimitedWindows.of()).aggregate(OfStreams::initial)));
        Topologies.dsl("cogroup_session", b -> OfWindows.texts(cogrouped(b).windowedBy(OfWindows.SESSION)
            .aggregate(OfStreams::initial, OfWindows::merge, sessions())));
        Topologies.dsl("cogroup_tumbling_named", b -> OfWindows.texts(cogrouped(b).windowedBy(OfWindows.TUMBLING)
            .aggregate(OfStreams::initial, Named.as("cogrouping"),
                Materialized.<String, String, WindowStore<Bytes, byte[]>>as("windows")
                    .withKeySerde(Topologies.TEXT).withValueSerde(Topologies.TEXT)
                    .withRetention(OfWindows.LONG))));
        Topologies.dsl("cogroup_session_rekeyed", OfCogroup::sessionsRekeyed);
        Topologies.dsl("cogroup_suppressed", OfCogroup::suppressed);
    }

    private static KGroupedStream<String, String> grouped(StreamsBuilder builder, String topic) {
        return builder.<String, String>stream(topic).groupByKey();
    }

    private static CogroupedKStream<String, String> cogrouped(StreamsBuilder builder) {
        KGroupedStream<String, String> left = grouped(builder, "left");
        return left.<String>cogroup(OfStreams::aggregate).cogroup(grouped(builder, "right"), OfCogroup::right);
    }

    private static String right(String key, String value, String aggregate) {
        return OfStreams.append(aggregate, "r" + value);
    }

    /** Deletes the row for an empty value. */
    private static String third(String key, String value, String aggregate) {
        return value.isEmpty() ? null : OfStreams.append(aggregate, "t" + value);
    }

    /** A retention beyond all inputs: a cache of Kafka Streams still has windows whose retention is over. */
    private static Materialized<String, String, WindowStore<Bytes, byte[]>> windows() {
        return Materialized.<String, String, WindowStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.TEXT)
            .withRetention(OfWindows.LONG);
    }

    private static Materialized<String, String, SessionStore<Bytes, byte[]>> sessions() {
        return Materialized.<String, String, SessionStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.TEXT)
            .withRetention(OfWindows.LONG);
    }

    private static void rekeyed(StreamsBuilder builder) {
        KGroupedStream<String, String> left = builder.<String, String>stream("left").groupBy((k, v) -> v);
        left.<String>cogroup(OfStreams::aggregate).cogroup(grouped(builder, "right"), OfCogroup::right)
            .aggregate(OfStreams::initial, Named.as("cogrouping"), Topologies.texts("cogrouped")).toStream().to("out");
    }

    private static void allRekeyed(StreamsBuilder builder) {
        KGroupedStream<String, String> left = builder.<String, String>stream("left").groupBy((k, v) -> v);
        KGroupedStream<String, String> right = builder.<String, String>stream("right")
            .groupBy((k, v) -> v, Grouped.as("right-by-value"));
        left.<String>cogroup(OfStreams::aggregate).cogroup(right, OfCogroup::right)
            .aggregate(OfStreams::initial).toStream().to("out");
    }

    /** Two tables of the same streams, one of which goes through a topic. */
    private static void twice(StreamsBuilder builder) {
        KGroupedStream<String, String> left = builder.<String, String>stream("left")
            .groupBy((k, v) -> v, Grouped.as("by-value"));
        CogroupedKStream<String, String> both = left.<String>cogroup(OfStreams::aggregate)
            .cogroup(grouped(builder, "right"), OfCogroup::right);
        both.aggregate(OfStreams::initial).toStream().to("out");
        OfWindows.texts(both.windowedBy(OfWindows.TUMBLING).aggregate(OfStreams::initial, windows()));
    }

    private static void sessionsRekeyed(StreamsBuilder builder) {
        KGroupedStream<String, String> left = builder.<String, String>stream("left")
            .groupBy((k, v) -> v, Grouped.as("by-value"));
        OfWindows.texts(left.<String>cogroup(OfStreams::aggregate).cogroup(grouped(builder, "right"), OfCogroup::right)
            .windowedBy(OfWindows.SESSION).aggregate(OfStreams::initial, OfWindows::merge, Named.as("cogrouping"),
                Materialized.<String, String, SessionStore<Bytes, byte[]>>as("sessions")
                    .withKeySerde(Topologies.TEXT).withValueSerde(Topologies.TEXT).withRetention(OfWindows.LONG)));
    }

    /** Suppress takes no default serde for the key in a window. */
    private static void suppressed(StreamsBuilder builder) {
        OfWindows.texts(cogrouped(builder).windowedBy(OfWindows.TUMBLING).aggregate(OfStreams::initial,
            windows()).suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())));
    }
}
