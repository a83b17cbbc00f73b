import java.time.Duration;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.Stores;

/** Joins of streams: with streams, tables, global tables. The topic of the stream is `left`, the other one `right`. */
final class OfStreamJoins {
    private static final JoinWindows WINDOWS =
        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(10), Duration.ofMillis(5));
    private static final JoinWindows ASYMMETRIC = WINDOWS.before(Duration.ofMillis(3)).after(Duration.ofMillis(7));

    private OfStreamJoins() {}

    static void add() {
        Topologies.dsl("join_streams_inner", b -> left(b).join(right(b), OfStreamJoins::both, WINDOWS).to("out"));
        Topologies.dsl("join_streams_left", b -> left(b).leftJoin(right(b), OfStreamJoins::both, WINDOWS).to("out"));
        Topologies.dsl("join_streams_outer", b -> left(b).outerJoin(right(b), OfStreamJoins::both, WINDOWS).to("out"));
        Topologies.dsl("join_streams_asymmetric_inner",
            b -> left(b).join(right(b), OfStreamJoins::both, ASYMMETRIC).to("out"));
        Topologies.dsl("join_streams_asymmetric_outer",
            b -> left(b).outerJoin(right(b), OfStreamJoins::both, ASYMMETRIC).to("out"));
        Topologies.dsl("join_streams_no_grace", b -> left(b)
            .outerJoin(right(b), OfStreamJoins::both, JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(10)))
            .to("out"));
        Topologies.dsl("join_streams_with_key", b -> left(b).leftJoin(right(b), OfStreamJoins::all, WINDOWS).to("out"));
        Topologies.dsl("join_streams_self", OfStreamJoins::self);
        Topologies.dsl("join_streams_rekeyed", OfStreamJoins::rekeyed);
        Topologies.dsl("join_streams_named", b -> left(b).outerJoin(right(b), OfStreamJoins::both, WINDOWS,
            StreamJoined.<String, String, String>as("joined").withName("joining")).to("out"));
        Topologies.dsl("join_streams_in_memory", b -> left(b).leftJoin(right(b), OfStreamJoins::both, WINDOWS,
            StreamJoined.with(BuiltInDslStoreSuppliers.IN_MEMORY)).to("out"));
        Topologies.dsl("join_stream_table_inner", b -> left(b).join(table(b), OfStreamJoins::both).to("out"));
        Topologies.dsl("join_stream_table_left", b -> left(b).leftJoin(table(b), OfStreamJoins::both).to("out"));
        Topologies.dsl("join_stream_table_with_key", b -> left(b).leftJoin(table(b), OfStreamJoins::all).to("out"));
        Topologies.dsl("join_stream_table_rekeyed",
            b -> left(b).selectKey((k, v) -> v).leftJoin(table(b), OfStreamJoins::both, Joined.as("by-value"))
                .to("out"));
        Topologies.dsl("join_stream_table_mapped", OfStreamJoins::mapped);
        Topologies.dsl("join_stream_versioned_table_inner",
            b -> left(b).join(versioned(b), OfStreamJoins::both).to("out"));
        Topologies.dsl("join_stream_versioned_table_left",
            b -> left(b).leftJoin(versioned(b), OfStreamJoins::both).to("out"));
        Topologies.dsl("join_stream_versioned_table_grace_inner",
            b -> left(b).join(versioned(b), OfStreamJoins::both, grace()).to("out"));
        Topologies.dsl("join_stream_versioned_table_grace_left",
            b -> left(b).leftJoin(versioned(b), OfStreamJoins::both, grace()).to("out"));
        Topologies.dsl("join_stream_global_inner",
            b -> left(b).join(global(b), (k, v) -> v, OfStreamJoins::both).to("out"));
        Topologies.dsl("join_stream_global_left",
            b -> left(b).leftJoin(global(b), (k, v) -> v, OfStreamJoins::both).to("out"));
        Topologies.dsl("join_stream_global_named", b -> left(b).leftJoin(
            b.globalTable("right", Topologies.texts("everywhere")), (k, v) -> k, OfStreamJoins::all).to("out"));
    }

    static String both(String left, String right) {
        return left + "&" + right;
    }

    private static String all(String key, String left, String right) {
        return key + ":" + left + "&" + right;
    }

    private static KStream<String, String> left(StreamsBuilder builder) {
        return builder.stream("left");
    }

    private static KStream<String, String> right(StreamsBuilder builder) {
        return builder.stream("right");
    }

    private static KTable<String, String> table(StreamsBuilder builder) {
        return builder.table("right");
    }

    private static GlobalKTable<String, String> global(StreamsBuilder builder) {
        return builder.globalTable("right");
    }

    private static KTable<String, String> versioned(StreamsBuilder builder) {
        return builder.table("right",
            Materialized.as(Stores.persistentVersionedKeyValueStore("versions", Duration.ofMinutes(2))));
    }

    private static Joined<String, String, String> grace() {
        return Joined.<String, String, String>with(Topologies.TEXT, Topologies.TEXT, Topologies.TEXT)
            .withGracePeriod(Duration.ofMillis(5));
    }

    private static void self(StreamsBuilder builder) {
        KStream<String, String> left = left(builder);
        left.join(left, OfStreamJoins::both, WINDOWS).to("out");
    }

    private static void rekeyed(StreamsBuilder builder) {
        KStream<String, String> swapped = right(builder).map((k, v) -> KeyValue.pair(v, k));
        left(builder).selectKey((k, v) -> v).leftJoin(swapped, OfStreamJoins::both, WINDOWS).to("out");
    }

    private static void mapped(StreamsBuilder builder) {
        left(builder).leftJoin(table(builder).filter((k, v) -> !v.startsWith("b")).mapValues(v -> v + "!"),
            OfStreamJoins::both).to("out");
    }
}
