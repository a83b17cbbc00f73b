import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Operators of several kinds, one behind the other, as of_chains.py has them. */
final class OfChains {
    private static final Duration LIMIT = Duration.ofMillis(10);
    private static final JoinWindows WINDOWS = JoinWindows.ofTimeDifferenceAndGrace(LIMIT, Duration.ofMillis(5));

    private OfChains() {}

    static void add() {
        Topologies.dsl("chain_joined_in_windows", b -> OfWindows.texts(
            joined(b).groupByKey(texts()).windowedBy(OfWindows.HOPPING).count()));
        Topologies.dsl("chain_joined_in_closing_windows", b -> OfWindows.texts(
            joined(b).groupByKey(texts()).windowedBy(OfWindows.TUMBLING).emitStrategy(EmitStrategy.onWindowClose())
                .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.LONG)
                    .withRetention(OfWindows.LONG))));
        Topologies.dsl("chain_joined_in_sessions", b -> OfWindows.texts(
            joined(b).groupByKey(texts()).windowedBy(OfWindows.SESSION).reduce(OfStreams::append)));
        Topologies.dsl("chain_joined_then_deleted",
            b -> joined(b).groupByKey(texts()).reduce(OfChains::brief).toStream().to("out"));
        Topologies.dsl("chain_joined_then_windows_deleted", b -> OfWindows.texts(
            joined(b).groupByKey(texts()).windowedBy(OfWindows.HOPPING).reduce(OfChains::brief)));
        Topologies.dsl("chain_later_partners", b -> left(b).leftJoin(right(b), OfStreamJoins::both,
            WINDOWS.before(Duration.ofMillis(-2))).to("out"));
        Topologies.dsl("chain_earlier_partners", b -> left(b).outerJoin(right(b), OfStreamJoins::both,
            WINDOWS.after(Duration.ofMillis(-3))).to("out"));
        Topologies.dsl("chain_joined_twice", b -> joined(b).outerJoin(right(b), OfStreamJoins::both,
            JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(4), Duration.ofMillis(2))).to("out"));
        Topologies.dsl("chain_closed_joined_with_table", OfChains::closedJoinedWithTable);
        Topologies.dsl("chain_closed_in_windows", OfChains::closedInWindows);
        Topologies.dsl("chain_sessions_grouped", OfChains::sessionsGrouped);
        Topologies.dsl("chain_grace_in_sessions", OfChains::graceInSessions);
        Topologies.dsl("chain_foreign_key_suppressed", b -> table(b, "left")
            .leftJoin(table(b, "right"), OfTables::letter, OfStreamJoins::both)
            .suppress(Suppressed.untilTimeLimit(LIMIT, BufferConfig.maxRecords(3).emitEarlyWhenFull()))
            .groupBy(OfTables::byLetter, texts()).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("chain_suppressed_foreign_key", b -> table(b, "left")
            .suppress(Suppressed.untilTimeLimit(LIMIT, BufferConfig.unbounded()))
            .join(table(b, "right").suppress(Suppressed.untilTimeLimit(Duration.ofMillis(4), BufferConfig.unbounded())),
                OfTables::letter, OfStreamJoins::both).toStream().to("out"));
        Topologies.dsl("chain_updates_joined", b -> table(b, "left").outerJoin(table(b, "right"), OfStreamJoins::both)
            .toStream().outerJoin(right(b), OfStreamJoins::both, WINDOWS).to("out"));
    }

    private static KStream<String, String> left(StreamsBuilder builder) {
        return builder.stream("left");
    }

    /** A stream of a topic that is a table, too, where one is. */
    private static KStream<String, String> right(StreamsBuilder builder) {
        return builder.stream("other");
    }

    private static KTable<String, String> table(StreamsBuilder builder, String topic) {
        return builder.table(topic);
    }

    private static KStream<String, String> joined(StreamsBuilder builder) {
        return left(builder).outerJoin(builder.<String, String>stream("right"), OfStreamJoins::both, WINDOWS);
    }

    private static String brief(String soFar, String value) {
        return soFar.length() > 8 ? null : OfStreams.append(soFar, value);
    }

    private static Grouped<String, String> texts() {
        return Grouped.with(Topologies.TEXT, Topologies.TEXT);
    }

    private static KStream<String, String> closed(StreamsBuilder builder) {
        return left(builder).groupByKey(texts()).windowedBy(OfWindows.TUMBLING).reduce(OfStreams::append)
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
            .toStream((w, v) -> w.key());
    }

    private static void closedJoinedWithTable(StreamsBuilder builder) {
        closed(builder).leftJoin(table(builder, "right"), OfStreamJoins::both,
            Joined.with(Topologies.TEXT, Topologies.TEXT, Topologies.TEXT)).to("out");
    }

    private static void closedInWindows(StreamsBuilder builder) {
        OfWindows.texts(closed(builder).merge(builder.stream("right")).groupByKey(texts())
            .windowedBy(OfWindows.SLIDING).count());
    }

    private static void sessionsGrouped(StreamsBuilder builder) {
        left(builder).groupByKey(texts()).windowedBy(OfWindows.SESSION)
            .reduce(OfStreams::append, Materialized.<String, String, SessionStore<Bytes, byte[]>>with(
                Topologies.TEXT, Topologies.TEXT).withRetention(OfWindows.LONG))
            .groupBy((w, v) -> org.apache.kafka.streams.KeyValue.pair(w.key(), v), texts())
            .reduce(OfStreams::append, (a, v) -> a + "-").toStream().to("out");
    }

    private static void graceInSessions(StreamsBuilder builder) {
        KTable<String, String> right = builder.table("right", Materialized.<String, String>as(
            Stores.persistentVersionedKeyValueStore("versions", Duration.ofMinutes(2))));
        OfWindows.texts(left(builder).leftJoin(right, OfStreamJoins::both,
                Joined.<String, String, String>with(Topologies.TEXT, Topologies.TEXT, Topologies.TEXT)
                    .withGracePeriod(Duration.ofMillis(6)))
            .groupByKey(texts()).windowedBy(OfWindows.SESSION).reduce(OfStreams::append));
    }
}
