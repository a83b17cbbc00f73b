import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Joins of tables by foreign key, as of_foreign_keys.py has them, but for those of OfTableJoins. */
final class OfForeignKeys {
    private OfForeignKeys() {}

    static void add() {
        Topologies.dsl("foreign_key_null_inner",
            b -> out(left(b).join(right(b), OfForeignKeys::unlessX, OfStreamJoins::both)));
        Topologies.dsl("foreign_key_null_left",
            b -> out(left(b).leftJoin(right(b), OfForeignKeys::unlessX, OfStreamJoins::both)));
        Topologies.dsl("foreign_key_null_results",
            b -> out(left(b).leftJoin(right(b), OfTables::letter, (l, r) -> r == null ? null : l + r)));
        Topologies.dsl("foreign_key_named", b -> out(left(b)
            .join(right(b), OfTables::letter, OfStreamJoins::both, TableJoined.as("linking"))));
        Topologies.dsl("foreign_key_uncached", OfForeignKeys::uncached);
        Topologies.dsl("foreign_key_in_memory", OfForeignKeys::inMemory);
        Topologies.dsl("foreign_key_partitioned", OfForeignKeys::partitioned);
        Topologies.dsl("foreign_key_mapped", OfForeignKeys::mapped);
        Topologies.dsl("foreign_key_kept", OfForeignKeys::kept);
        Topologies.dsl("foreign_key_self", OfForeignKeys::ofItself);
        Topologies.dsl("foreign_key_twice", OfForeignKeys::twice);
        Topologies.dsl("foreign_key_of_both", OfForeignKeys::ofBoth);
        Topologies.dsl("foreign_key_joined_further", OfForeignKeys::joinedFurther);
        Topologies.dsl("foreign_key_rekeyed", OfForeignKeys::rekeyed);
        Topologies.dsl("foreign_key_of_counts", OfForeignKeys::ofCounts);
        Topologies.dsl("foreign_key_to_counts", OfForeignKeys::toCounts);
        Topologies.dsl("foreign_key_versioned_mapped", b -> out(versioned(b, "left").mapValues(OfForeignKeys::loud)
            .join(versioned(b, "right").filter(OfForeignKeys::notB), OfTables::letter, OfStreamJoins::both)));
    }

    private static String unlessX(String value) {
        return value.startsWith("x") ? null : OfTables.letter(value);
    }

    private static void uncached(StreamsBuilder builder) {
        KTable<String, String> left = builder.table("left", Topologies.texts("lefts").withCachingDisabled());
        KTable<String, String> right = builder.table("right", Topologies.texts("rights").withCachingDisabled());
        out(left.join(right, OfTables::letter, OfStreamJoins::both, Topologies.texts("linked").withCachingDisabled()));
    }

    private static void inMemory(StreamsBuilder builder) {
        KTable<String, String> left = builder.table("left",
            Materialized.<String, String>as(Stores.inMemoryKeyValueStore("left-rows")));
        KTable<String, String> right = builder.table("right",
            Materialized.<String, String>as(Stores.inMemoryKeyValueStore("right-rows")));
        out(left.leftJoin(right, OfTables::letter, OfStreamJoins::both,
            Materialized.<String, String>as(Stores.inMemoryKeyValueStore("linked"))
                .withValueSerde(Topologies.TEXT).withLoggingDisabled()));
    }

    private static void partitioned(StreamsBuilder builder) {
        StreamPartitioner<String, Void> first = (topic, key, value, count) -> Optional.of(Set.of(0));
        StreamPartitioner<String, Void> byDefault = (topic, key, value, count) -> Optional.empty();
        out(left(builder).join(right(builder), OfForeignKeys::unlessX, OfStreamJoins::both,
            TableJoined.with(first, byDefault).withName("by")));
    }

    private static void mapped(StreamsBuilder builder) {
        KTable<String, String> left = left(builder).filter(OfForeignKeys::notB).mapValues(OfForeignKeys::loud);
        out(left.leftJoin(right(builder).mapValues(OfForeignKeys::loud).filter(OfForeignKeys::notB), OfTables::letter,
            OfStreamJoins::both));
    }

    private static void kept(StreamsBuilder builder) {
        KTable<String, String> left = left(builder).mapValues(OfForeignKeys::loud,
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("loud").withValueSerde(Topologies.TEXT));
        out(left.join(right(builder).filter(OfForeignKeys::notB, Materialized.as("not-b")), OfTables::letter,
            OfStreamJoins::both));
    }

    private static void ofItself(StreamsBuilder builder) {
        KTable<String, String> left = left(builder);
        out(left.leftJoin(left, OfTables::letter, OfStreamJoins::both));
    }

    private static void twice(StreamsBuilder builder) {
        KTable<String, String> left = left(builder);
        KTable<String, String> right = right(builder);
        KTable<String, String> third = builder.table("third");
        out(left.join(right, OfTables::letter, OfStreamJoins::both)
            .leftJoin(third, OfForeignKeys::lastLetter, OfStreamJoins::both));
    }

    private static void ofBoth(StreamsBuilder builder) {
        KTable<String, String> left = left(builder);
        KTable<String, String> right = right(builder);
        out(left.join(right, OfTables::letter, OfStreamJoins::both));
        right.leftJoin(left, OfTables::letter, OfStreamJoins::both).toStream().to("other");
    }

    private static void joinedFurther(StreamsBuilder builder) {
        KTable<String, String> joined = left(builder).leftJoin(right(builder), OfTables::letter, OfStreamJoins::both);
        out(joined.filter(OfForeignKeys::notB).leftJoin(builder.<String, String>table("third"), OfStreamJoins::both));
    }

    private static void rekeyed(StreamsBuilder builder) {
        KTable<String, String> left = builder.<String, String>stream("left").selectKey((k, v) -> v).toTable();
        out(left.leftJoin(right(builder), (k, v) -> v.isEmpty() ? k : OfTables.letter(v), OfStreamJoins::both));
    }

    private static void ofCounts(StreamsBuilder builder) {
        KTable<String, Long> counts =
            builder.<String, String>stream("left").groupByKey().count(Materialized.as("counts"));
        out(counts.join(right(builder), (k, v) -> k, (l, r) -> l + "&" + r,
            Materialized.with(null, Topologies.TEXT)));
    }

    private static void toCounts(StreamsBuilder builder) {
        KTable<String, String> left = left(builder);
        KTable<String, Long> counts = builder.<String, String>stream("right").groupBy((k, v) -> v)
            .count(Materialized.as("counts"));
        out(left.leftJoin(counts, OfTables::letter, (l, r) -> l + "&" + r, Materialized.with(null, Topologies.TEXT)));
    }

    private static boolean notB(String key, String value) {
        return !value.startsWith("b");
    }

    private static String loud(String value) {
        return value + "!";
    }

    /** The last letter, as Python has them. */
    private static String lastLetter(String value) {
        return value.isEmpty() ? "" : value.substring(value.offsetByCodePoints(value.length(), -1));
    }

    private static KTable<String, String> versioned(StreamsBuilder builder, String topic) {
        return builder.table(topic,
            Materialized.as(Stores.persistentVersionedKeyValueStore("versions-of-" + topic, Duration.ofMinutes(2))));
    }

    private static KTable<String, String> left(StreamsBuilder builder) {
        return builder.table("left");
    }

    private static KTable<String, String> right(StreamsBuilder builder) {
        return builder.table("right");
    }

    private static void out(KTable<String, String> table) {
        table.toStream().to("out");
    }
}
