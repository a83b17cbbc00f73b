import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Operators on versioned tables, beside those of OfTableJoins and OfStreamJoins. */
final class OfVersioned {
    private static final Duration HISTORY = Duration.ofMinutes(2);

    private OfVersioned() {}

    static void add() {
        Topologies.dsl("versioned_chain_grouped", b -> table(b, "in").filter(OfVersioned::notB).mapValues(v -> v + "!")
            .groupBy(OfTables::byLetter).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("versioned_filter_chosen", b -> table(b, "in")
            .filter(OfVersioned::notB, Materialized.with(Topologies.TEXT, Topologies.TEXT))
            .groupBy(OfTables::byLetter).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("versioned_filter_kept", OfVersioned::filterKept);
        Topologies.dsl("versioned_map_values_kept", OfVersioned::mapValuesKept);
        Topologies.dsl("versioned_join_mapped", b -> out(table(b, "left").mapValues(v -> v + "!")
            .outerJoin(b.<String, String>table("right"), OfStreamJoins::both)));
        Topologies.dsl("versioned_join_kept", b -> table(b, "left")
            .leftJoin(table(b, "right"), OfStreamJoins::both, kept("joined"))
            .groupBy(OfTables::byLetter).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("versioned_join_unkept_grouped", b -> table(b, "left")
            .join(table(b, "right"), OfStreamJoins::both)
            .groupBy(OfTables::byLetter).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("versioned_reduce", b -> out(OfStreams.in(b).groupByKey()
            .reduce((a, v) -> v.equals("del") ? null : OfStreams.append(a, v), kept("reduced"))));
        Topologies.dsl("versioned_aggregate", b -> out(OfStreams.in(b).groupByKey()
            .aggregate(OfStreams::initial, OfStreams::aggregate, kept("aggregated"))));
        Topologies.dsl("versioned_grouped_table", b -> out(b.<String, String>table("in").groupBy(OfTables::byLetter)
            .reduce(OfStreams::append, (a, v) -> a.length() > 12 ? "" : a + "-" + v, kept("reduced"))));
        Topologies.dsl("join_stream_versioned_table_mapped", b -> b.<String, String>stream("left")
            .leftJoin(table(b, "right").filter(OfVersioned::notB).mapValues(v -> v + "!"), OfStreamJoins::both)
            .to("out"));
        Topologies.dsl("join_stream_grace_named", b -> b.<String, String>stream("left").join(
            table(b, "right"), OfStreamJoins::both,
            Joined.<String, String, String>as("waiting").withKeySerde(Topologies.TEXT).withGracePeriod(GRACE))
            .to("out"));
        Topologies.dsl("join_stream_grace_rekeyed", b -> b.<String, String>stream("left").selectKey((k, v) -> v).join(
            table(b, "right").filter(OfVersioned::notB).mapValues(v -> v + "!"), OfStreamJoins::both, grace(GRACE))
            .groupByKey().count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("join_stream_grace_none", b -> b.<String, String>stream("left").leftJoin(
            table(b, "right"), OfStreamJoins::both, grace(Duration.ZERO)).to("out"));
        Topologies.dsl("join_stream_grace_long", b -> b.<String, String>stream("left").join(
            table(b, "right"), OfStreamJoins::both, grace(HISTORY)).to("out"));
    }

    private static final Duration GRACE = Duration.ofMillis(12);

    private static Joined<String, String, String> grace(Duration grace) {
        return Joined.<String, String, String>with(Topologies.TEXT, Topologies.TEXT, Topologies.TEXT)
            .withGracePeriod(grace);
    }

    private static boolean notB(String key, String value) {
        return !value.startsWith("b");
    }

    private static KTable<String, String> table(StreamsBuilder builder, String topic) {
        return builder.table(topic,
            Materialized.as(Stores.persistentVersionedKeyValueStore("versions-of-" + topic, HISTORY)));
    }

    private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> kept(String store) {
        return Materialized.<String, String>as(Stores.persistentVersionedKeyValueStore(store, HISTORY))
            .withKeySerde(Topologies.TEXT).withValueSerde(Topologies.TEXT);
    }

    private static void filterKept(StreamsBuilder builder) {
        KTable<String, String> rows = table(builder, "in");
        rows.filter(OfVersioned::notB, kept("kept")).groupBy(OfTables::byLetter).count().toStream()
            .to("counts", Topologies.longs());
        out(rows.filter(OfVersioned::notB, Topologies.texts("plain")));
    }

    private static void mapValuesKept(StreamsBuilder builder) {
        KTable<String, String> rows = builder.table("in");
        rows.mapValues(v -> v + "!", kept("loud")).filter(OfVersioned::notB).groupBy(OfTables::byLetter).count()
            .toStream().to("counts", Topologies.longs());
        out(table(builder, "other").mapValues(v -> v.isEmpty() ? null : v + "?", Topologies.texts("plain")));
    }

    private static void out(KTable<String, String> table) {
        table.toStream().to("out");
    }
}
