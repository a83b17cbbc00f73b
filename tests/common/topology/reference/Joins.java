import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs joins-input.tsv through joins of two streams, and writes what each record leads to: outputs with their headers,
 * changelog records as bytes, and the number of dropped records.
 */
public final class Joins {

    private static final List<String> OUTPUTS = List.of("inner", "left", "outer", "self", "instant", "rekeyed");

    public static void main(final String[] args) throws Exception {
        final Properties config = new Properties();
        config.put("application.id", "app");
        config.put("bootstrap.servers", "localhost:1");
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        config.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        final List<String> lines = new ArrayList<>();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(), config)) {
            int number = 0;
            long dropped = 0;
            for (final String line : Files.readAllLines(Path.of(args[0], "joins-input.tsv"))) {
                final String[] words = line.split("\t");
                final Headers headers = new RecordHeaders().add("n", ("" + number++).getBytes(StandardCharsets.UTF_8));
                final Instant time = Instant.ofEpochMilli(Long.parseLong(words[3]));
                driver.createInputTopic(words[0], new StringSerializer(), new StringSerializer())
                    .pipeInput(new TestRecord<>(orNull(words[1]), orNull(words[2]), headers, time));
                lines.add("> " + line);
                OUTPUTS.forEach(topic -> read(driver, topic, lines));
                changelogs(driver, lines);
                if (dropped(driver) != dropped) {
                    dropped = dropped(driver);
                    lines.add("dropped\t" + dropped);
                }
            }
        }
        Files.writeString(Path.of(args[0], "joins.tsv"), String.join("\n", lines) + "\n");
    }

    private static Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> left = builder.stream("left-input");
        final KStream<String, String> right = builder.stream("right-input");
        left.join(right, Joins::pair, windows(30, 20, 10), named("i")).to("inner");
        left.leftJoin(right, (key, l, r) -> key + ":" + pair(l, r), windows(40, 20, 30), named("l")).to("left");
        left.outerJoin(right, Joins::pair, windows(20, 35, 15), named("o")).to("outer");
        left.join(left, Joins::pair, windows(25, 25, 0), named("s")).to("self");
        left.outerJoin(right, Joins::pair, windows(0, 0, 1), named("n")).to("instant");
        left.selectKey((k, v) -> v == null || v.startsWith("c") ? null : k)
            .leftJoin(right.selectKey((k, v) -> k), Joins::pair, windows(40, -10, 5), named("r"))
            .to("rekeyed");
        return builder.build();
    }

    private static JoinWindows windows(final long before, final long after, final long grace) {
        return JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(before), Duration.ofSeconds(grace))
            .after(Duration.ofSeconds(after));
    }

    private static StreamJoined<String, String, String> named(final String store) {
        return StreamJoined.<String, String, String>as(store).withName(store + "-join");
    }

    private static String pair(final String left, final String right) {
        return (left == null ? "-" : left) + "+" + (right == null ? "-" : right);
    }

    private static String orNull(final String word) {
        return word.equals("-") ? null : word;
    }

    private static void read(final TopologyTestDriver driver, final String topic, final List<String> lines) {
        for (final TestRecord<String, String> each
            : driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer()).readRecordsToList()) {
            final String key = each.key() == null ? "-" : each.key();
            lines.add(String.join("\t", topic, key, each.value(), "" + each.timestamp(), text(each.headers())));
        }
    }

    private static void changelogs(final TopologyTestDriver driver, final List<String> lines) {
        for (final String topic : new TreeSet<>(driver.producedTopicNames())) {
            if (!topic.endsWith("-changelog")) {
                continue;
            }
            final TestOutputTopic<byte[], byte[]> records =
                driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            for (final TestRecord<byte[], byte[]> each : records.readRecordsToList()) {
                final String store = topic.replaceAll("^app-|-changelog$", "");
                lines.add(String.join("\t", store, hex(each.key()), hex(each.value()), "" + each.timestamp()));
            }
        }
    }

    private static String hex(final byte[] bytes) {
        return bytes == null ? "-" : HexFormat.of().formatHex(bytes);
    }

    private static String text(final Headers headers) {
        final List<String> found = new ArrayList<>();
        for (final Header each : headers) {
            found.add(each.key() + "=" + new String(each.value(), StandardCharsets.UTF_8));
        }
        return String.join(",", found);
    }

    private static long dropped(final TopologyTestDriver driver) {
        return driver.metrics().entrySet().stream()
            .filter(each -> each.getKey().name().equals("dropped-records-total"))
            .mapToLong(each -> ((Double) each.getValue().metricValue()).longValue())
            .sum();
    }
}
