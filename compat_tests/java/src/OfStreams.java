import static java.util.Arrays.asList;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Printed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/** The operators on streams, as of_streams.py has them. */
final class OfStreams {
    private OfStreams() {}

    static void add() {
        Topologies.dsl("filter", OfStreams::filter);
        Topologies.dsl("map", builder -> in(builder).map((k, v) -> KeyValue.pair(v, k)).to("out"));
        Topologies.dsl("map_values", OfStreams::mapValues);
        Topologies.dsl("flat_map", OfStreams::flatMap);
        Topologies.dsl("flat_map_values", OfStreams::flatMapValues);
        Topologies.dsl("select_key", builder -> in(builder).selectKey((k, v) -> v).to("out"));
        Topologies.dsl("peek_for_each_and_print", OfStreams::peekForEachAndPrint);
        Topologies.dsl("split", OfStreams::split);
        Topologies.dsl("merge", OfStreams::merge);
        Topologies.dsl("repartition", OfStreams::repartition);
        Topologies.dsl("dynamic_topic", OfStreams::dynamicTopic);
        Topologies.dsl("partitioner", OfStreams::partitioner);
        Topologies.dsl("several_sources", OfStreams::severalSources);
        Topologies.dsl("timestamp_extractor", OfStreams::timestampExtractor);
        Topologies.dsl("group_by_key_count", b -> in(b).groupByKey().count().toStream().to("out", Topologies.longs()));
        Topologies.dsl("group_by_key_reduce", b -> in(b).groupByKey().reduce(OfStreams::append).toStream().to("out"));
        Topologies.dsl("group_by_key_aggregate", b -> aggregate(in(b).groupByKey()));
        Topologies.dsl("group_by_count", OfStreams::groupByCount);
        Topologies.dsl("group_by_reduce", OfStreams::groupByReduce);
        Topologies.dsl("group_by_aggregate", b -> aggregate(in(b).groupBy((k, v) -> v)));
        Topologies.dsl("group_by_key_named", OfStreams::groupByKeyNamed);
        Topologies.dsl("materialized", OfStreams::materialized);
        Topologies.dsl("to_table", b -> in(b).toTable().toStream().to("out"));
        Topologies.dsl("to_table_named", b -> in(b).toTable(Materialized.as("rows")).toStream().to("out"));
        Topologies.dsl("to_table_rekeyed", b -> in(b).selectKey((k, v) -> v).toTable().toStream().to("out"));
        Topologies.dsl("named_operators", OfStreams::namedOperators);
    }

    static KStream<String, String> in(StreamsBuilder builder) {
        return builder.stream("in");
    }

    /** An aggregate that grows, and stops growing before it is long. A windowed one gets values that are null, too. */
    static String append(String aggregate, String value) {
        return aggregate.length() > 12 ? value : aggregate + "+" + value;
    }

    static String initial() {
        return "0";
    }

    /** `append`; a value "del" deletes the row. */
    static String aggregate(String key, String value, String aggregate) {
        return "del".equals(value) ? null : append(aggregate, key + value);
    }

    private static void aggregate(KGroupedStream<String, String> grouped) {
        grouped.aggregate(OfStreams::initial, OfStreams::aggregate).toStream().to("out");
    }

    static List<String> words(String value) {
        return value == null ? List.of() : asList(value.split(" ", -1));
    }

    private static void filter(StreamsBuilder builder) {
        in(builder).filter((k, v) -> v != null).filterNot((k, v) -> v.startsWith("b")).to("out");
    }

    private static void mapValues(StreamsBuilder builder) {
        KStream<String, String> in = in(builder);
        in.mapValues(v -> v == null ? "none" : v.isEmpty() ? null : v + "!").to("out");
        in.mapValues((k, v) -> k + ":" + v).to("with-key");
    }

    private static void flatMap(StreamsBuilder builder) {
        in(builder).flatMap((k, v) -> {
            List<KeyValue<String, String>> pairs = new ArrayList<>();
            words(v).forEach(word -> pairs.add(KeyValue.pair(word, k)));
            return pairs;
        }).to("out");
    }

    private static void flatMapValues(StreamsBuilder builder) {
        KStream<String, String> in = in(builder);
        in.flatMapValues(v -> words(v)).to("out");
        in.flatMapValues((k, v) -> asList(k, v, null)).to("with-key");
    }

    private static void peekForEachAndPrint(StreamsBuilder builder) {
        KStream<String, String> in = in(builder).peek((k, v) -> { });
        in.foreach((k, v) -> { });
        in.print(Printed.toSysOut());
        in.to("out");
    }

    private static void split(StreamsBuilder builder) {
        Map<String, KStream<String, String>> branches = in(builder).split(Named.as("split-"))
            .branch((k, v) -> v == null, Branched.as("none"))
            .branch((k, v) -> v.startsWith("a"))
            .branch((k, v) -> v.startsWith("b"), Branched.withConsumer(stream -> stream.to("b"), "chained"))
            .defaultBranch(Branched.as("rest"));
        branches.get("split-none").to("none");
        branches.get("split-2").merge(branches.get("split-rest")).to("a-and-rest");
        in(builder).split().branch((k, v) -> k == null, Branched.withConsumer(s -> s.to("no-key"))).noDefaultBranch();
    }

    private static void merge(StreamsBuilder builder) {
        KStream<String, String> left = builder.stream("left");
        KStream<String, String> right = builder.stream("right");
        left.merge(right.mapValues(v -> v + "'")).to("out");
        left.merge(right).groupByKey().count().toStream().to("counts", Topologies.longs());
    }

    private static void repartition(StreamsBuilder builder) {
        KStream<String, String> in = in(builder);
        in.selectKey((k, v) -> v).repartition(Repartitioned.<String, String>as("by-value").withNumberOfPartitions(1))
            .groupByKey().count().toStream().to("counts", Topologies.longs());
        in.repartition().to("out");
    }

    private static void dynamicTopic(StreamsBuilder builder) {
        in(builder).to((k, v, context) -> {
            String kind = context.headers().lastHeader("a") == null ? "plain" : "marked";
            return v == null ? "none-" + context.topic() : kind + "-" + context.timestamp() % 2;
        });
    }

    private static void partitioner(StreamsBuilder builder) {
        StreamPartitioner<String, String> chosen =
            (topic, key, value, partitions) -> Optional.of("b".equals(key) ? Set.of() : Set.of(partitions - 1));
        StreamPartitioner<String, String> left = (topic, key, value, partitions) -> Optional.empty();
        KStream<String, String> in = in(builder);
        in.to("chosen", Produced.with(Topologies.TEXT, Topologies.TEXT, chosen));
        in.to("left", Produced.streamPartitioner(left));
        in.repartition(Repartitioned.<String, String>as("again").withStreamPartitioner(chosen)).to("again");
    }

    private static void severalSources(StreamsBuilder builder) {
        builder.<String, String>stream(List.of("left", "right")).mapValues(v -> "1" + v).to("out");
        builder.<String, String>stream(Pattern.compile("in-[0-9]+")).mapValues(v -> "2" + v).to("out");
        builder.<String, String>stream("twice").to("first");
        builder.<String, String>stream("twice").groupByKey().count().toStream().to("second", Topologies.longs());
    }

    private static void timestampExtractor(StreamsBuilder builder) {
        Consumed<String, String> later = Consumed.with((record, partitionTime) ->
            record.value() == null ? -1 : Math.max(record.timestamp(), partitionTime) + 7);
        KStream<String, String> in = builder.stream("in", later);
        in.to("out");
        in.groupByKey().reduce(OfStreams::append).toStream().to("reduced");
    }

    private static void groupByCount(StreamsBuilder builder) {
        in(builder).flatMapValues(v -> words(v)).groupBy((k, v) -> v).count().toStream().to("out", Topologies.longs());
    }

    private static void groupByReduce(StreamsBuilder builder) {
        in(builder).groupBy((k, v) -> v == null ? null : OfTables.letter(v))
            .reduce(OfStreams::append, Materialized.as("reduced")).toStream().to("out");
    }

    private static void groupByKeyNamed(StreamsBuilder builder) {
        KGroupedStream<String, String> grouped = in(builder).selectKey((k, v) -> v).groupByKey(Grouped.as("shared"));
        grouped.count(Named.as("counting")).toStream().to("counts", Topologies.longs());
        grouped.reduce(OfStreams::append).toStream(Named.as("updates")).to("reduced", Produced.as("sink"));
    }

    private static void materialized(StreamsBuilder builder) {
        KGroupedStream<String, String> grouped = in(builder).groupByKey();
        grouped.count(Materialized.with(Topologies.TEXT, Topologies.LONG)).toStream().to("counts", Topologies.longs());
        grouped.reduce(OfStreams::append, Topologies.texts("unlogged").withLoggingDisabled()).toStream().to("unlogged");
        grouped.reduce(OfStreams::append, Topologies.texts("uncached").withCachingDisabled()).toStream().to("uncached");
        grouped.aggregate(
            OfStreams::initial, OfStreams::aggregate,
            Topologies.texts("in-memory").withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY)
        ).toStream().to("in-memory");
    }

    private static void namedOperators(StreamsBuilder builder) {
        KStream<String, String> in = builder.<String, String>stream("in", Consumed.as("source"))
            .filter((k, v) -> true, Named.as("filter"))
            .mapValues(v -> v, Named.as("map-values"))
            .map((k, v) -> KeyValue.pair(k, v), Named.as("map"))
            .flatMapValues(v -> asList(v, v), Named.as("flat-map-values"))
            .flatMap((k, v) -> List.of(KeyValue.pair(k, v)), Named.as("flat-map"))
            .selectKey((k, v) -> v, Named.as("select-key"))
            .peek((k, v) -> { }, Named.as("peek"));
        in.merge(in.filterNot((k, v) -> v == null), Named.as("merge")).to("out", Produced.as("sink"));
        in.toTable(Named.as("to-table")).toStream(Named.as("to-stream")).to("rows");
    }
}
