import java.time.Duration;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;

/** Topologies that `topology.optimization` makes others of. */
final class OfOptimization {
    private static final JoinWindows WINDOWS =
        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(10), Duration.ofMillis(5));

    private OfOptimization() {}

    static void add() {
        Topologies.dsl("optimized_groups", OfOptimization::groups);
        Topologies.dsl("optimized_one_group", b -> OfStreams.in(b).groupBy((k, v) -> v).count(Materialized.as("counts"))
            .toStream().to("out", Topologies.longs()));
        Topologies.dsl("optimized_named_groups", OfOptimization::namedGroups);
        Topologies.dsl("optimized_filters_between", OfOptimization::filtersBetween);
        Topologies.dsl("optimized_values_changed_between", OfOptimization::valuesChangedBetween);
        Topologies.dsl("optimized_merge", b -> twice(rekeyed(b, "in").merge(rekeyed(b, "other"))));
        Topologies.dsl("optimized_merge_of_one_rekeyed",
            b -> twice(b.<String, String>stream("other").merge(rekeyed(b, "in"))));
        Topologies.dsl("optimized_process_between", OfOptimization::processBetween);
        Topologies.dsl("optimized_repartition_stays", OfOptimization::repartitionStays);
        Topologies.dsl("optimized_joins", OfOptimization::joins);
        Topologies.dsl("optimized_joined_streams", OfOptimization::joinedStreams);
        Topologies.dsl("optimized_self_left", OfOptimization::selfLeft);
        Topologies.dsl("optimized_self_outer_named", OfOptimization::selfOuterNamed);
        Topologies.dsl("optimized_twin_sources",
            b -> OfStreams.in(b).join(OfStreams.in(b), OfStreamJoins::both, WINDOWS).to("out"));
        Topologies.dsl("optimized_self_rekeyed", OfOptimization::selfRekeyed);
        Topologies.dsl("optimized_self_of_two_branches", OfOptimization::selfOfTwoBranches);
        Topologies.dsl("optimized_tables", OfOptimization::tables);
    }

    private static KStream<String, String> rekeyed(StreamsBuilder builder, String topic) {
        return builder.<String, String>stream(topic).selectKey((k, v) -> v);
    }

    private static void counted(KStream<String, String> stream, String topic) {
        stream.groupByKey().count().toStream().to(topic, Topologies.longs());
    }

    private static void reduced(KStream<String, String> stream, String topic) {
        stream.groupByKey().reduce(OfStreams::append).toStream().to(topic);
    }

    private static void twice(KStream<String, String> stream) {
        counted(stream, "counts");
        reduced(stream, "reduced");
    }

    private static void groups(StreamsBuilder builder) {
        KStream<String, String> stream = rekeyed(builder, "in");
        twice(stream);
        stream.toTable().toStream().to("latest");
        stream.to("keys");
    }

    private static void namedGroups(StreamsBuilder builder) {
        KStream<String, String> stream = rekeyed(builder, "in");
        stream.groupByKey(Grouped.as("first")).count(Named.as("counting")).toStream()
            .to("counts", Topologies.longs());
        stream.groupByKey(Grouped.as("second")).reduce(OfStreams::append, Materialized.as("rows")).toStream()
            .to("reduced");
    }

    private static void filtersBetween(StreamsBuilder builder) {
        KStream<String, String> stream = rekeyed(builder, "in");
        counted(stream.filter((k, v) -> !"b".equals(v)), "counts");
        reduced(stream.peek((k, v) -> { }).filterNot((k, v) -> v == null), "reduced");
    }

    private static void valuesChangedBetween(StreamsBuilder builder) {
        KStream<String, String> stream = rekeyed(builder, "in");
        counted(stream.mapValues(v -> v), "counts");
        reduced(stream, "reduced");
    }

    private static void processBetween(StreamsBuilder builder) {
        twice(rekeyed(builder, "in").process(() -> new OfProcessors.Texts() {
            @Override
            public void process(Record<String, String> record) {
                context().forward(record.withKey(record.value()).withValue(record.key()));
            }
        }));
        reduced(rekeyed(builder, "in").processValues(() -> new ContextualFixedKeyProcessor<String, String, String>() {
            @Override
            public void process(FixedKeyRecord<String, String> record) {
                context().forward(record.withValue((record.value() == null ? "None" : record.value()) + "!"));
            }
        }), "louder");
    }

    private static void repartitionStays(StreamsBuilder builder) {
        KStream<String, String> stream = rekeyed(builder, "in");
        counted(stream.repartition(Repartitioned.as("mine")), "counts");
        reduced(stream, "reduced");
    }

    private static void joins(StreamsBuilder builder) {
        KStream<String, String> stream = rekeyed(builder, "in");
        KTable<String, String> table = builder.table("right");
        stream.leftJoin(table, OfStreamJoins::both).to("left");
        stream.join(table.filter((k, v) -> !v.startsWith("b")), OfStreamJoins::both).to("inner");
        counted(stream, "counts");
    }

    private static void joinedStreams(StreamsBuilder builder) {
        KStream<String, String> stream = rekeyed(builder, "in");
        KStream<String, String> other = rekeyed(builder, "right");
        stream.join(other, OfStreamJoins::both, WINDOWS).to("joined");
        counted(stream, "counts");
        counted(other, "others");
    }

    private static void selfLeft(StreamsBuilder builder) {
        KStream<String, String> stream = OfStreams.in(builder);
        stream.leftJoin(stream, OfStreamJoins::both, WINDOWS.before(Duration.ofMillis(3)).after(Duration.ofMillis(7)))
            .to("out");
    }

    private static void selfOuterNamed(StreamsBuilder builder) {
        KStream<String, String> stream = OfStreams.in(builder);
        stream.outerJoin(stream, OfStreamJoins::both, WINDOWS,
            StreamJoined.<String, String, String>as("joined").withName("joining")).to("out");
    }

    private static void selfRekeyed(StreamsBuilder builder) {
        KStream<String, String> stream = rekeyed(builder, "in");
        stream.join(stream, OfStreamJoins::both, WINDOWS,
            StreamJoined.<String, String, String>with(null, null, null).withName("joining")).to("out");
    }

    private static void selfOfTwoBranches(StreamsBuilder builder) {
        KStream<String, String> stream = OfStreams.in(builder);
        stream.join(stream.filter((k, v) -> !"b".equals(v)), OfStreamJoins::both, WINDOWS).to("out");
    }

    private static void tables(StreamsBuilder builder) {
        KTable<String, String> one = builder.table("in", Topologies.texts("rows"))
            .filter((k, v) -> !v.startsWith("b"));
        one.toStream().to("rows");
        one.join(builder.<String, String>table("other"), OfStreamJoins::both).toStream().to("joined");
        builder.table("third", Consumed.with(Topologies.TEXT, Topologies.TEXT),
            Materialized.<String, String>as(Stores.inMemoryKeyValueStore("kept")).withLoggingDisabled())
            .toStream().to("third-out");
    }
}
