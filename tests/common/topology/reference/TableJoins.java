import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Joins with tables: what Kafka Streams prints for the topologies, and what each record of table-joins-input.tsv leads
 * to. table_join_programs.py has the same ones in Python.
 */
public final class TableJoins {

    private static final Serde<String> TEXT = Serdes.String();
    private static final ValueJoiner<String, String, String> PAIR =
        (v, w) -> v != null && v.equals(w) ? null : v + "+" + w;
    private static final ValueJoinerWithKey<String, String, String, String> WITH_KEY = (k, v, w) -> k + ":" + v + "+" + w;
    private static final List<String> OUTPUTS = List.of(
        "inner", "kept-inner", "inner-rows", "left", "outer", "left-rows", "outer-rows", "far", "chained", "self",
        "stream-inner", "stream-left", "stream-far", "rekeyed-inner", "rekeyed-left", "twice"
    );

    public static void main(final String[] args) throws Exception {
        final Path folder = Path.of(args[0]);
        Files.writeString(folder.resolve("table_joins.txt"), tableJoins().describe().toString());
        Files.writeString(folder.resolve("stream_table_joins.txt"), streamTableJoins().describe().toString());
        Files.writeString(folder.resolve("table_join_semantics.txt"), semantics().describe().toString());
        Files.writeString(folder.resolve("table-joins.tsv"), run(folder, "0"));
        Files.writeString(folder.resolve("table-joins-cached.tsv"), run(folder, "10485760"));
    }

    static Topology tableJoins() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KTable<String, String> a = builder.table("a");
        final KTable<String, String> b = builder.table("b", Materialized.as("b-store"));
        final KTable<String, String> c = builder.table("c");
        a.join(b, PAIR).toStream().to("inner");
        a.filter((k, v) -> true).leftJoin(c.mapValues(v -> v), PAIR, Named.as("named-left")).toStream().to("left");
        final KTable<String, String> outer = a.outerJoin(b, PAIR, Materialized.as("outer-store"));
        final KTable<String, String> joined = outer.mapValues(v -> v).join(c, PAIR, Named.as("both"), Materialized.as("s"));
        joined.leftJoin(outer.filter((k, v) -> true), PAIR).groupBy(KeyValue::pair).count();
        final KTable<String, String> d = builder.table("d");
        final KTable<String, String> e = builder.table("e");
        final KTable<String, String> f = builder.table("f");
        final KTable<String, String> de = d.join(e, PAIR);
        de.outerJoin(f, PAIR).mapValues(v -> v).join(de, PAIR, Materialized.with(TEXT, TEXT)).toStream().to("def");
        d.join(d, PAIR).filter((k, v) -> true).toStream().to("self");
        final KStream<String, String> stream = builder.stream("stream");
        final KTable<String, Long> counts = stream.groupByKey().count();
        counts.mapValues(v -> "" + v).join(stream.selectKey((k, v) -> v).toTable(), PAIR).toStream().to("counted");
        builder.<String, String>table("g").filter((k, v) -> true)
            .join(builder.<String, String>table("h").filter((k, v) -> true), PAIR);
        return builder.build();
    }

    static Topology streamTableJoins() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> stream = builder.stream("stream");
        final KTable<String, String> a = builder.table("a");
        final KTable<String, String> b = builder.table("b", Materialized.as("b-store"));
        stream.join(a, PAIR).leftJoin(b, PAIR).to("twice");
        final KStream<String, String> rekeyed = stream.selectKey((k, v) -> v);
        rekeyed.join(a, PAIR).to("rekeyed-inner");
        rekeyed.leftJoin(b, PAIR, Joined.with(TEXT, TEXT, TEXT)).to("rekeyed-left");
        rekeyed.mapValues(v -> v).leftJoin(b, WITH_KEY, Joined.as("by-value")).groupByKey().count();
        stream.map(KeyValue::pair, Named.as("mapped")).join(a, PAIR).to("mapped-inner");
        stream.merge(builder.stream("other")).join(a.outerJoin(b, PAIR).filter((k, v) -> true), PAIR).to("far");
        stream.leftJoin(a.join(b, PAIR, Materialized.as("joined-store")), WITH_KEY, Joined.as("with-joined")).to("kept");
        builder.<String, String>stream("stream").join(b.mapValues(v -> v), PAIR).to("again");
        stream.selectKey((k, v) -> v).repartition().leftJoin(a, PAIR).to("repartitioned");
        return builder.build();
    }

    static Topology semantics() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KTable<String, String> a = builder.table("a");
        final KTable<String, String> b = builder.table("b");
        final KTable<String, String> c = builder.table("c");
        final KTable<String, String> d = builder.table("d");
        final KTable<String, String> e = builder.table("e", Materialized.as("e-store"));
        a.join(b, PAIR).toStream().to("inner");
        a.join(b, PAIR, store("kept-inner-store")).toStream().to("kept-inner");
        rows(a.join(e, PAIR, store("inner-rows-store")), "inner-rows");
        c.leftJoin(d, PAIR).toStream().to("left");
        c.outerJoin(d, PAIR).toStream().to("outer");
        rows(c.leftJoin(e, PAIR), "left-rows");
        rows(d.outerJoin(e, PAIR), "outer-rows");
        final KTable<String, String> lower = b.filter((k, v) -> !v.startsWith("x"))
            .mapValues((k, v) -> v.startsWith("n") ? null : k + v);
        final KTable<String, String> far = lower.leftJoin(d.filterNot((k, v) -> v.startsWith("y")), PAIR);
        far.toStream().to("far");
        final KTable<String, String> chained = far.mapValues(v -> "m" + v).outerJoin(a.join(c, PAIR), PAIR)
            .filter((k, v) -> !v.endsWith("null"));
        chained.toStream().to("chained");
        e.join(e, (v, w) -> v + "=" + w).toStream().to("self");
        final KStream<String, String> stream = builder.stream("s");
        stream.join(a, PAIR).to("stream-inner");
        stream.leftJoin(b, WITH_KEY).to("stream-left");
        stream.leftJoin(chained, PAIR).to("stream-far");
        final KStream<String, String> rekeyed = stream.selectKey((k, v) -> v == null || v.startsWith("x") ? null : v);
        rekeyed.join(e, WITH_KEY, Joined.as("inner-by-value")).to("rekeyed-inner");
        rekeyed.leftJoin(c, WITH_KEY, Joined.as("left-by-value")).to("rekeyed-left");
        stream.leftJoin(d, PAIR).join(e, PAIR).to("twice");
        return builder.build();
    }

    /** Shows new and old values: the old one is subtracted first. */
    private static void rows(final KTable<String, String> table, final String topic) {
        table.groupBy((k, v) -> KeyValue.pair("all", v), Grouped.with(TEXT, TEXT))
            .aggregate(
                () -> "",
                (k, v, all) -> (all.length() > 30 ? "" : all) + "," + v,
                (k, v, all) -> (all.length() > 30 ? "" : all) + "-" + v,
                store(topic + "-aggregate")
            )
            .toStream().to(topic, Produced.with(TEXT, TEXT));
    }

    private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> store(final String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(TEXT).withValueSerde(TEXT);
    }

    private static String run(final Path folder, final String cache) throws Exception {
        final Properties config = new Properties();
        config.put("application.id", "app");
        config.put("bootstrap.servers", "localhost:1");
        config.put("statestore.cache.max.bytes", cache);
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        final List<String> lines = new ArrayList<>();
        try (TopologyTestDriver driver = new TopologyTestDriver(semantics(), config)) {
            for (final String line : Files.readAllLines(folder.resolve("table-joins-input.tsv"))) {
                final String[] words = line.split("\t");
                driver.createInputTopic(words[0], new StringSerializer(), new StringSerializer())
                    .pipeInput(orNull(words[1]), orNull(words[2]), Long.parseLong(words[3]));
                lines.add("> " + line);
                OUTPUTS.forEach(topic -> read(driver, topic, lines));
            }
        }
        return String.join("\n", lines) + "\n";
    }

    private static String orNull(final String word) {
        return word.equals("-") ? null : word;
    }

    private static void read(final TopologyTestDriver driver, final String topic, final List<String> lines) {
        for (final TestRecord<String, String> each
            : driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer()).readRecordsToList()) {
            final String value = each.value() == null ? "-" : each.value();
            lines.add(topic + "\t" + (each.key() == null ? "-" : each.key()) + "\t" + value + "\t" + each.timestamp());
        }
    }
}
