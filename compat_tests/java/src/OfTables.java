import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** The operators on tables, as of_tables.py has them. */
final class OfTables {
    private OfTables() {}

    static void add() {
        Topologies.dsl("table", b -> in(b).toStream().to("out"));
        Topologies.dsl("table_named", b -> b.table("in", Topologies.texts("rows")).toStream().to("out"));
        Topologies.dsl("table_filter", OfTables::filter);
        Topologies.dsl("table_filter_materialized", OfTables::filterMaterialized);
        Topologies.dsl("table_map_values", OfTables::mapValues);
        Topologies.dsl("table_map_values_materialized", OfTables::mapValuesMaterialized);
        Topologies.dsl("table_to_stream_mapper", b -> in(b).toStream((k, v) -> k + "/" + v).to("out"));
        Topologies.dsl("table_group_by_count", b -> grouped(b).count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("table_group_by_reduce", b -> reduced(grouped(b)).toStream().to("out"));
        Topologies.dsl("table_group_by_aggregate", OfTables::groupByAggregate);
        Topologies.dsl("table_group_by_filtered", OfTables::groupByFiltered);
        Topologies.dsl("table_group_by_named", OfTables::groupByNamed);
        Topologies.dsl("counts_regrouped", OfTables::countsRegrouped);
        Topologies.dsl("counts_filtered", OfTables::countsFiltered);
        Topologies.dsl("reduce_that_deletes", OfTables::reduceThatDeletes);
        Topologies.dsl("rows_read_by_a_processor", OfProcessors::rowsReadByAProcessor);
        Topologies.dsl("table_transform_values",
            b -> in(b).transformValues(() -> new Numbered()).toStream().to("out"));
        Topologies.dsl("table_transform_values_materialized", OfTables::transformValuesMaterialized);
        Topologies.dsl("table_transform_values_grouped", b -> reduced(in(b).transformValues(() -> new Numbered())
            .filter((k, v) -> !v.startsWith("3")).groupBy(OfTables::byLetter)).toStream().to("out"));
        Topologies.dsl("table_transform_values_with_store", OfTables::transformValuesWithStore);
        Topologies.dsl("table_transform_values_joined", OfTables::transformValuesJoined);
        Topologies.dsl("table_transform_values_versioned", OfTables::transformValuesVersioned);
    }

    static KTable<String, String> in(StreamsBuilder builder) {
        return builder.table("in");
    }

    static boolean startsWithA(String key, String value) {
        return value.startsWith("a");
    }

    /** The first letter, as Python has them: one beyond 16 bits is one letter. */
    static String letter(String value) {
        return value.isEmpty() ? null : value.substring(0, value.offsetByCodePoints(0, 1));
    }

    /** Rows by the first letter of their value; an empty value belongs to no group. */
    static KeyValue<String, String> byLetter(String key, String value) {
        return KeyValue.pair(letter(value), key + value);
    }

    private static KGroupedTable<String, String> grouped(StreamsBuilder builder) {
        return in(builder).groupBy(OfTables::byLetter);
    }

    static String subtract(String aggregate, String value) {
        return aggregate.length() > 12 ? "" : aggregate + "-" + value;
    }

    private static KTable<String, String> reduced(KGroupedTable<String, String> grouped) {
        return grouped.reduce(OfStreams::append, OfTables::subtract);
    }

    private static void filter(StreamsBuilder builder) {
        KTable<String, String> kept = in(builder).filter(OfTables::startsWithA);
        kept.toStream().to("kept");
        kept.filterNot((k, v) -> v.endsWith("b")).toStream().to("not-b");
    }

    private static void filterMaterialized(StreamsBuilder builder) {
        in(builder).filter(OfTables::startsWithA, Materialized.as("kept")).toStream().to("kept");
        builder.table("other", Topologies.texts("rows"))
            .filterNot(OfTables::startsWithA, Materialized.with(Topologies.TEXT, Topologies.TEXT))
            .filter((k, v) -> !v.endsWith("b"), Topologies.texts("not-b")).toStream().to("not-b");
    }

    private static void mapValues(StreamsBuilder builder) {
        in(builder).mapValues(v -> v.isEmpty() ? null : v + "!").toStream().to("out");
        builder.<String, String>table("other").mapValues((k, v) -> k + v).toStream().to("with-key");
    }

    private static void mapValuesMaterialized(StreamsBuilder builder) {
        in(builder).mapValues(v -> v.isEmpty() ? null : v + "!", Materialized.as("mapped")).toStream().to("out");
        builder.<String, String>table("other").mapValues((k, v) -> k + v, Topologies.texts("with-key"))
            .groupBy(OfTables::byLetter).count().toStream().to("counts", Topologies.longs());
    }

    private static void groupByAggregate(StreamsBuilder builder) {
        grouped(builder)
            .aggregate(OfStreams::initial, OfStreams::aggregate, (k, v, a) -> v.endsWith("x") ? null : subtract(a, v))
            .toStream().to("out");
    }

    private static void groupByFiltered(StreamsBuilder builder) {
        KGroupedTable<String, String> grouped = in(builder).filter((k, v) -> !v.endsWith("x")).mapValues(v -> v + ".")
            .groupBy((k, v) -> v.startsWith("b") ? null : byLetter(k, v));
        grouped.count().toStream().to("counts", Topologies.longs());
        reduced(grouped).toStream().to("reduced");
    }

    private static void groupByNamed(StreamsBuilder builder) {
        KGroupedTable<String, String> grouped = builder.<String, String>table("in", Consumed.as("users"))
            .filter(OfTables::startsWithA, Named.as("kept"))
            .mapValues(v -> v + "!", Named.as("loud"))
            .groupBy(OfTables::byLetter, Grouped.as("shared"));
        grouped.count(Named.as("counting"), Materialized.as("counts")).toStream().to("counts", Topologies.longs());
        reduced(grouped).toStream().to("reduced");
    }

    private static void countsRegrouped(StreamsBuilder builder) {
        OfStreams.in(builder).groupByKey().count()
            .groupBy((k, v) -> KeyValue.pair("n" + v % 2, v), Grouped.with(Topologies.TEXT, Topologies.LONG))
            .reduce((a, v) -> a + v, (a, v) -> a - v)
            .toStream().to("out", Topologies.longs());
    }

    private static void countsFiltered(StreamsBuilder builder) {
        KTable<String, Long> counts = OfStreams.in(builder).groupByKey().count();
        counts.filter((k, v) -> v % 2 == 0).toStream().to("even", Topologies.longs());
        counts.mapValues(v -> v % 3 == 0 ? null : "n" + v).toStream().to("texts");
        counts.mapValues(v -> "n" + v, Topologies.texts("labels")).filterNot((k, v) -> v.endsWith("2")).toStream()
            .to("labels");
    }

    private static void reduceThatDeletes(StreamsBuilder builder) {
        KTable<String, String> reduced =
            OfStreams.in(builder).groupByKey().reduce((a, v) -> v.equals("del") ? null : OfStreams.append(a, v));
        reduced.toStream().to("reduced");
        reduced.groupBy(OfTables::byLetter).count().toStream().to("counts", Topologies.longs());
    }

    private abstract static class Transformer implements ValueTransformerWithKey<String, String, String> {
        ProcessorContext context;

        @Override
        public void init(ProcessorContext context) {
            this.context = context;
        }

        @Override
        public void close() {}
    }

    private static final class Numbered extends Transformer {
        private int calls;

        @Override
        public String transform(String key, String value) {
            calls++;
            return "".equals(value) ? null : calls + ":" + value + "@" + context.timestamp();
        }
    }

    private static final class Followed extends Transformer {
        @Override
        public String transform(String key, String value) {
            KeyValueStore<String, String> seen = context.getStateStore("seen");
            String before = seen.get(key);
            seen.put(key, value);
            return value == null ? null : before + ">" + value;
        }
    }

    private static void transformValuesMaterialized(StreamsBuilder builder) {
        KTable<String, String> kept =
            in(builder).transformValues(() -> new Numbered(), Topologies.texts("kept"), Named.as("numbering"));
        kept.toStream().to("out");
        kept.groupBy(OfTables::byLetter).count().toStream().to("counts", Topologies.longs());
        builder.<String, String>table("other").transformValues(() -> new Numbered(),
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>with(null, Topologies.TEXT)
                .withLoggingDisabled()).toStream().to("unkept");
    }

    private static void transformValuesWithStore(StreamsBuilder builder) {
        builder.addStateStore(OfProcessors.store("seen"));
        in(builder).transformValues(() -> new Followed(), "seen").toStream().to("out");
        builder.<String, String>table("other").transformValues(() -> new Followed(),
            Materialized.as(Stores.inMemoryKeyValueStore("kept")), "seen").toStream().to("kept");
    }

    private static void transformValuesJoined(StreamsBuilder builder) {
        KTable<String, String> numbered = in(builder).transformValues(() -> new Numbered());
        numbered.leftJoin(builder.<String, String>table("other"), OfStreamJoins::both).toStream().to("tables");
        builder.<String, String>stream("stream").leftJoin(numbered, OfStreamJoins::both).to("streams");
    }

    private static void transformValuesVersioned(StreamsBuilder builder) {
        KTable<String, String> numbered = builder.<String, String>table("in",
            Materialized.as(Stores.persistentVersionedKeyValueStore("versions", Duration.ofMinutes(2))))
            .transformValues(() -> new Numbered());
        numbered.toStream().to("out");
        numbered.groupBy(OfTables::byLetter).count().toStream().to("counts", Topologies.longs());
        builder.<String, String>stream("stream").leftJoin(numbered, OfStreamJoins::both,
            Joined.<String, String, String>with(Topologies.TEXT, Topologies.TEXT, Topologies.TEXT)
                .withGracePeriod(Duration.ofMillis(12))).to("joined");
    }
}
