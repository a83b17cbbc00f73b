import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Joins of tables, by key and by foreign key, and versioned tables. The topics are `left` and `right`. */
final class OfTableJoins {
    private OfTableJoins() {}

    static void add() {
        Topologies.dsl("join_tables_inner", b -> out(left(b).join(right(b), OfStreamJoins::both)));
        Topologies.dsl("join_tables_left", b -> out(left(b).leftJoin(right(b), OfStreamJoins::both)));
        Topologies.dsl("join_tables_outer", b -> out(left(b).outerJoin(right(b), OfStreamJoins::both)));
        Topologies.dsl("join_tables_materialized",
            b -> out(left(b)
                .outerJoin(right(b), OfStreamJoins::both, Named.as("joining"), Topologies.texts("joined"))));
        Topologies.dsl("join_tables_regrouped", b -> left(b).leftJoin(right(b), OfStreamJoins::both)
            .groupBy(OfTables::byLetter).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("join_tables_mapped", b -> out(left(b).filter((k, v) -> !v.startsWith("b"))
            .outerJoin(right(b).mapValues(v -> v + "!"), OfStreamJoins::both)));
        Topologies.dsl("join_tables_three", b -> out(left(b).join(right(b), OfStreamJoins::both)
            .outerJoin(b.<String, String>table("third"), OfStreamJoins::both)));
        Topologies.dsl("join_tables_null_results",
            b -> out(left(b).leftJoin(right(b), (l, r) -> r == null ? null : l + r)));
        Topologies.dsl("join_tables_versioned_inner",
            b -> out(versioned(b, "left").join(versioned(b, "right"), OfStreamJoins::both)));
        Topologies.dsl("join_tables_versioned_outer",
            b -> out(versioned(b, "left").outerJoin(versioned(b, "right"), OfStreamJoins::both)));
        Topologies.dsl("foreign_key_inner",
            b -> out(left(b).join(right(b), OfTables::letter, OfStreamJoins::both)));
        Topologies.dsl("foreign_key_left",
            b -> out(left(b).leftJoin(right(b), OfTables::letter, OfStreamJoins::both)));
        Topologies.dsl("foreign_key_by_key_and_value",
            b -> out(left(b).join(right(b), (k, v) -> v.isEmpty() ? k : OfTables.letter(v), OfStreamJoins::both)));
        Topologies.dsl("foreign_key_materialized", b -> out(left(b).leftJoin(right(b), OfTables::letter,
            OfStreamJoins::both, TableJoined.as("linking"), Topologies.texts("linked"))));
        Topologies.dsl("foreign_key_versioned", b -> out(versioned(b, "left")
            .leftJoin(versioned(b, "right"), OfTables::letter, OfStreamJoins::both)));
        Topologies.dsl("foreign_key_regrouped", b -> left(b).join(right(b), OfTables::letter, OfStreamJoins::both)
            .groupBy(OfTables::byLetter).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("versioned_table", b -> out(versioned(b, "in")));
        Topologies.dsl("versioned_table_group_by",
            b -> versioned(b, "in").groupBy(OfTables::byLetter).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("versioned_table_filter", b -> out(versioned(b, "in").filter(OfTables::startsWithA)));
        Topologies.dsl("versioned_table_short_history", b -> out(b.table("in", Materialized.as(
            Stores.persistentVersionedKeyValueStore("short", Duration.ofMillis(20), Duration.ofMillis(10))))));
        Topologies.dsl("versioned_count", b -> OfStreams.in(b).groupByKey().count(versionedCounts()).toStream()
            .to("out", Topologies.longs()));
        Topologies.dsl("versioned_to_table", b -> out(OfStreams.in(b).toTable(
            Materialized.as(Stores.persistentVersionedKeyValueStore("versions", Duration.ofMinutes(2))))));
    }

    private static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> versionedCounts() {
        return Materialized.<String, Long>as(
            Stores.persistentVersionedKeyValueStore("versions", Duration.ofMinutes(2))).withKeySerde(Topologies.TEXT);
    }

    private static KTable<String, String> left(StreamsBuilder builder) {
        return builder.table("left");
    }

    private static KTable<String, String> right(StreamsBuilder builder) {
        return builder.table("right");
    }

    private static KTable<String, String> versioned(StreamsBuilder builder, String topic) {
        return builder.table(topic,
            Materialized.as(Stores.persistentVersionedKeyValueStore("versions-of-" + topic, Duration.ofMinutes(2))));
    }

    private static void out(KTable<String, String> table) {
        table.toStream().to("out");
    }
}
