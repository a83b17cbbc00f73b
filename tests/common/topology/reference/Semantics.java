import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.LongDeserializer;
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
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.test.TestRecord;

/** Runs semantics-input.tsv through tables and aggregations, and writes what each record leads to. */
public final class Semantics {

    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> NUMBER = Serdes.Long();
    private static final List<String> TEXTS = List.of("reduced", "aggregated", "labels", "joined", "rekeyed", "kept");
    private static final List<String> NUMBERS = List.of("rows", "counts", "even", "sum");

    public static void main(final String[] args) throws Exception {
        final Properties config = new Properties();
        config.put("application.id", "app");
        config.put("bootstrap.servers", "localhost:1");
        config.put("statestore.cache.max.bytes", "0");
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        final List<String> lines = new ArrayList<>();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(), config)) {
            for (final String line : Files.readAllLines(Path.of(args[0], "semantics-input.tsv"))) {
                final String[] words = line.split("\t");
                driver.createInputTopic(words[0], new StringSerializer(), new StringSerializer())
                    .pipeInput(orNull(words[1]), orNull(words[2]), Long.parseLong(words[3]));
                lines.add("> " + line);
                TEXTS.forEach(topic -> read(driver, topic, new StringDeserializer(), lines));
                NUMBERS.forEach(topic -> read(driver, topic, new LongDeserializer(), lines));
            }
        }
        Files.writeString(Path.of(args[0], "semantics.tsv"), String.join("\n", lines) + "\n");
    }

    private static Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KGroupedTable<String, String> grouped = builder.<String, String>table("users")
            .filter((k, v) -> !v.startsWith("x"))
            .mapValues(v -> v.toUpperCase())
            .groupBy((k, v) -> KeyValue.pair(v.length() > 2 ? null : v.substring(0, 1), k + v));
        grouped.count(Materialized.as("rows-store")).toStream().to("rows", Produced.with(TEXT, NUMBER));
        final KTable<String, String> reduced =
            grouped.reduce((a, v) -> a + "+" + v, (a, v) -> a.length() > 30 ? null : a + "-" + v);
        reduced.toStream().to("reduced");
        reduced.groupBy((k, v) -> KeyValue.pair("n" + v.length() % 3, v))
            .aggregate(() -> "I", (k, v, a) -> a.length() > 40 ? "" : a + v.length(), (k, v, a) -> a + "~")
            .toStream().to("aggregated");
        final KStream<String, String> stream = builder.stream("events");
        final KTable<String, Long> counts = stream.groupByKey().count();
        counts.toStream().to("counts", Produced.with(TEXT, NUMBER));
        counts.filter((k, v) -> v % 2 == 0).toStream().to("even", Produced.with(TEXT, NUMBER));
        counts.mapValues(v -> "v" + v).filterNot((k, v) -> v.endsWith("3"), store("labels")).toStream().to("labels");
        counts.groupBy((k, v) -> KeyValue.pair("all", v), Grouped.with(TEXT, NUMBER))
            .reduce((a, v) -> a + v, (a, v) -> a - v)
            .toStream().to("sum", Produced.with(TEXT, NUMBER));
        stream.groupByKey()
            .aggregate(() -> "", (k, v, a) -> v.equals("del") ? null : a + v.charAt(0), Materialized.with(TEXT, TEXT))
            .mapValues(v -> v + "!", store("joined"))
            .toStream().to("joined");
        stream.selectKey((k, v) -> v).toTable().filter((k, v) -> !v.startsWith("a")).toStream().to("rekeyed");
        stream.toTable(Materialized.as("kept")).filter((k, v) -> !v.startsWith("a")).toStream().to("kept");
        return builder.build();
    }

    private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> store(final String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(TEXT).withValueSerde(TEXT);
    }

    private static String orNull(final String word) {
        return word.equals("-") ? null : word;
    }

    private static <V> void read(
        final TopologyTestDriver driver, final String topic, final Deserializer<V> values, final List<String> lines
    ) {
        for (final TestRecord<String, V> each
            : driver.createOutputTopic(topic, new StringDeserializer(), values).readRecordsToList()) {
            final String value = each.value() == null ? "-" : each.value().toString();
            lines.add(topic + "\t" + each.key() + "\t" + value + "\t" + each.timestamp());
        }
    }
}
