import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Printed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** Writes what Kafka Streams prints for each topology below; programs.py has the same ones in Python. */
public final class Describe {

    public static void main(final String[] args) throws Exception {
        final Map<String, Supplier<Topology>> all = new TreeMap<>();
        all.put("word_count", Describe::wordCount);
        all.put("repartition_aggregations_split_merge", Describe::repartitionAggregationsSplitMerge);
        all.put("processor_api", Describe::processorApi);
        all.put("table_group_by", Describe::tableGroupBy);
        all.put("names", Describe::names);
        all.put("materialized", Describe::materialized);
        all.put("sources", Describe::sources);
        all.put("fan_out", Describe::fanOut);
        all.put("stream_joins", Describe::streamJoins);
        all.put("stream_joins_by_new_keys", Describe::streamJoinsByNewKeys);
        for (final Map.Entry<String, Supplier<Topology>> each : all.entrySet()) {
            final Path file = Path.of(args[0], each.getKey() + ".txt");
            Files.writeString(file, each.getValue().get().describe().toString());
        }
    }

    static Topology wordCount() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> List.of(line.split("\\s+")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to("word-counts", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    static Topology repartitionAggregationsSplitMerge() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> input = builder.stream("input");
        final KGroupedStream<String, String> grouped = input
            .filter((key, value) -> value != null)
            .selectKey((key, value) -> value)
            .repartition(Repartitioned.<String, String>as("by-value").withNumberOfPartitions(3))
            .groupByKey();
        final KStream<String, Long> counts = grouped.count().toStream();
        final KStream<String, String> longest = grouped.reduce((a, b) -> a.length() < b.length() ? b : a).toStream();
        counts.mapValues(count -> "" + count).merge(longest).to("output");
        final Map<String, KStream<String, String>> branches = input.split(Named.as("split-"))
            .branch((key, value) -> value.startsWith("a"), Branched.as("a"))
            .branch((key, value) -> value.startsWith("b"))
            .defaultBranch(Branched.as("rest"));
        branches.get("split-a").merge(branches.get("split-rest")).peek((key, value) -> { }).to("a-and-rest");
        branches.get("split-2").map((key, value) -> KeyValue.pair(value, key)).groupByKey().count().toStream().to("b");
        input.split()
            .branch((key, value) -> key == null, Branched.withConsumer(stream -> stream.to("null-keys")))
            .branch((key, value) -> true, Branched.withFunction(stream -> stream.filterNot((k, v) -> v == null)))
            .noDefaultBranch();
        return builder.build();
    }

    static StoreBuilder<KeyValueStore<String, String>> store(final String name) {
        return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), Serdes.String(), Serdes.String());
    }

    static Topology processorApi() {
        return new Topology()
            .addSource("orders-source", "orders")
            .addSource("payments-source", "payments", "refunds")
            .addSource("clicks-source", Pattern.compile("clicks-.*"))
            .addProcessor("join", Forwarding<String, String>::new, "orders-source", "payments-source")
            .addProcessor("audit", Forwarding<String, String>::new, "join")
            .addProcessor("clicks", Forwarding<String, String>::new, "clicks-source")
            .addStateStore(store("open-orders"), "join")
            .addStateStore(store("totals"), "join", "audit")
            .addSink("paid-sink", "paid", "join")
            .addSink("failed-sink", "failed", "join", "audit")
            .addSink("clicks-sink", "clicks", "clicks");
    }

    static Topology tableGroupBy() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KTable<String, String> users = builder.table("users");
        final KGroupedTable<String, String> byCity = users
            .filter((user, city) -> city != null)
            .mapValues(city -> city.toUpperCase(Locale.ROOT))
            .groupBy((user, city) -> KeyValue.pair(city, user));
        byCity.count(Materialized.as("users-per-city")).toStream().to("users-per-city");
        byCity.reduce((a, b) -> a + b, (a, b) -> a).toStream().to("users-in-city");
        final KTable<String, Long> sizes = byCity.aggregate(() -> 0L, (k, v, sum) -> sum + 1, (k, v, sum) -> sum - 1);
        sizes.groupBy((city, count) -> KeyValue.pair(count, city)).count().toStream().to("cities-per-size");
        builder.stream("clicks").to("clicks-copy");
        return builder.build();
    }

    static Topology names() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> input = builder.stream("input", Consumed.as("in"));
        final KStream<String, String> mapped = input
            .filter((k, v) -> true, Named.as("filter"))
            .filterNot((k, v) -> false)
            .map(KeyValue::pair, Named.as("map"))
            .mapValues(v -> v, Named.as("map-values"))
            .flatMap((k, v) -> List.of(KeyValue.pair(k, v)))
            .flatMapValues(v -> List.of(v), Named.as("flat-map-values"))
            .selectKey((k, v) -> k, Named.as("select-key"))
            .peek((k, v) -> { }, Named.as("peek"));
        mapped.foreach((k, v) -> { }, Named.as("for-each"));
        mapped.foreach((k, v) -> { });
        mapped.print(Printed.toSysOut());
        final KGroupedStream<String, String> grouped = mapped.groupByKey(Grouped.as("grouped"));
        grouped.count(Named.as("count"));
        grouped.aggregate(() -> "", (k, v, a) -> a, Named.as("aggregate"), Materialized.as("aggregated"));
        mapped.groupBy((k, v) -> v, Grouped.as("by-value")).reduce((a, b) -> b).toStream(Named.as("to-stream"))
            .to("output", Produced.as("out"));
        builder.table("table", Consumed.as("users"))
            .filter((k, v) -> true, Named.as("table-filter"))
            .mapValues(v -> v, Named.as("table-map-values"))
            .groupBy(KeyValue::pair, Grouped.as("table-group"))
            .count(Named.as("table-count"), Materialized.as("table-counts"));
        return builder.build();
    }

    static Topology materialized() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.table("named", Materialized.as("named-store"))
            .filter((k, v) -> true, Materialized.as("filtered"))
            .mapValues(v -> v, Materialized.as("mapped"))
            .toStream((k, v) -> v)
            .to("named-output");
        builder.<String, String>table("unnamed", Materialized.with(Serdes.String(), Serdes.String()))
            .filter((k, v) -> true, Materialized.with(Serdes.String(), Serdes.String()))
            .filterNot((k, v) -> true)
            .mapValues(v -> v, Materialized.with(Serdes.String(), Serdes.String()))
            .toStream().to("unnamed-output");
        final KStream<String, String> stream = builder.stream("stream");
        stream.toTable().toStream().to("table-output");
        stream.selectKey((k, v) -> v).toTable(Named.as("to-table"), Materialized.as("table-store"));
        stream.map((k, v) -> KeyValue.pair(v, k)).toTable().groupBy(KeyValue::pair).count().toStream().to("by-key");
        stream.groupByKey().count(Materialized.with(Serdes.String(), Serdes.Long())).toStream().to("counts");
        stream.groupByKey().reduce((a, b) -> b, Materialized.with(Serdes.String(), Serdes.String()));
        stream.repartition().to("repartitioned");
        return builder.build();
    }

    static Topology sources() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(store("shared"));
        final KStream<String, String> many = builder.stream(List.of("zeta", "alpha", "gamma-7", "b", "orders", "x1"));
        final KStream<String, String> one = builder.stream("one");
        final KStream<String, String> again = builder.stream("one");
        final KStream<String, String> pattern = builder.stream(Pattern.compile("p-[0-9]+"));
        many.process(Forwarding<String, String>::new, "shared").to("processed");
        one.processValues(ForwardingValues<String, String>::new, Named.as("values"), "shared").groupByKey().count();
        again.process(Forwarding<String, String>::new, Named.as("rekey")).groupByKey().count();
        pattern.merge(again).to("merged", Produced.as("merged-sink"));
        return builder.build();
    }

    static Topology fanOut() {
        final Topology topology = new Topology().addSource("source", "input");
        for (int i = 0; i < 9; i++) {
            final String[] parents = i % 3 == 0 ? new String[] {"source"} : new String[] {"worker-" + (i - 1), "source"};
            topology.addProcessor("worker-" + i, Forwarding<String, String>::new, parents);
        }
        for (int i = 0; i < 9; i++) {
            topology.addStateStore(store("s" + i * 37), "worker-" + i % 4);
        }
        for (int i = 0; i < 12; i++) {
            final String first = "worker-" + i % 9;
            final String second = "worker-" + (i * 5 + 1) % 9;
            if (first.equals(second)) {
                topology.addSink("sink-" + i, "out-" + i, first);
            } else {
                topology.addSink("sink-" + i, "out-" + i, first, second);
            }
        }
        return topology;
    }

    static final JoinWindows WINDOWS =
        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMinutes(5), Duration.ofMinutes(1));

    static StreamJoined<String, String, String> named(final String name) {
        return StreamJoined.<String, String, String>with(null, null, null).withName(name);
    }

    static Topology streamJoins() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> left = builder.stream("left");
        final KStream<String, String> right = builder.stream("right");
        left.join(right, (a, b) -> a, WINDOWS).to("inner");
        left.leftJoin(right, (a, b) -> a, WINDOWS).to("left-joined");
        left.outerJoin(right, (a, b) -> a, WINDOWS).mapValues(v -> v).to("outer");
        left.join(left, (a, b) -> a, WINDOWS).to("self");
        left.join(right, (a, b) -> a, WINDOWS, named("named"));
        left.leftJoin(right, (a, b) -> a, WINDOWS, named("n").withStoreName("kept"));
        left.outerJoin(right, (a, b) -> a, WINDOWS, named("m").withStoreName("outer"));
        final KStream<String, String> again = builder.stream("left");
        again.merge(right).join(builder.<String, String>table("rows").toStream(), (a, b) -> a, WINDOWS)
            .groupByKey().count().toStream().to("counts");
        return builder.build();
    }

    static Topology streamJoinsByNewKeys() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> left = builder.stream("left");
        final KStream<String, String> right = builder.stream("right");
        final KStream<String, String> byValue = left.selectKey((k, v) -> v);
        byValue.join(right, (a, b) -> a, WINDOWS).to("first");
        byValue.leftJoin(right, (a, b) -> a, WINDOWS).to("second");
        byValue.outerJoin(right.map(KeyValue::pair), (a, b) -> a, WINDOWS, named("named")).to("third");
        byValue.join(right, (a, b) -> a, WINDOWS).to("fourth");
        byValue.join(byValue, (a, b) -> a, WINDOWS).groupByKey().count();
        left.selectKey((k, v) -> v, Named.as("rekey"))
            .join(byValue.peek((k, v) -> { }), (a, b) -> a, WINDOWS)
            .to("fifth");
        left.join(right, (a, b) -> a, WINDOWS).selectKey((k, v) -> v).leftJoin(left, (a, b) -> a, WINDOWS).to("sixth");
        return builder.build();
    }

    private static final class Forwarding<K, V> extends ContextualProcessor<K, V, K, V> {
        @Override
        public void process(final Record<K, V> record) {
            context().forward(record);
        }
    }

    private static final class ForwardingValues<K, V> extends ContextualFixedKeyProcessor<K, V, V> {
        @Override
        public void process(final FixedKeyRecord<K, V> record) {
            context().forward(record);
        }
    }
}
