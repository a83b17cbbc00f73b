import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.test.TestRecord;

/** Runs topologies by name in Kafka's own test driver. A line of JSON in, a line of JSON out; see jvm.py. */
public final class Bench {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Bench() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            switch (request.get("do").asText()) {
                case "list" -> Topologies.names().forEach(answer.putArray("names")::add);
                case "describe" ->
                    answer.put("text", Topologies.build(name(request), settings(request)).describe().toString());
                case "run" -> run(request, answer);
                default -> throw new IllegalArgumentException("unknown request " + request);
            }
        } catch (RuntimeException error) {
            answer.put("failed", text(error));
        }
        return answer;
    }

    /** The outputs before the first step and of each step; `error`: why the steps end early. */
    private static void run(JsonNode request, ObjectNode answer) {
        Properties settings = settings(request);
        ArrayNode outputs = answer.putArray("outputs");
        TopologyTestDriver driver = new TopologyTestDriver(
            Topologies.build(name(request), settings), settings, Instant.ofEpochMilli(request.get("wall_ms").asLong())
        );
        try {
            read(driver, outputs.addObject());
            for (JsonNode step : request.get("steps")) {
                if (step.has("advance_ms")) {
                    driver.advanceWallClockTime(Duration.ofMillis(step.get("advance_ms").asLong()));
                } else {
                    pipe(driver, step);
                }
                read(driver, outputs.addObject());
            }
        } catch (RuntimeException error) {
            answer.put("error", text(error));
        } finally {
            close(driver);
        }
    }

    private static void close(TopologyTestDriver driver) {
        try {
            driver.close();
        } catch (RuntimeException error) {
            System.err.println("a driver was closed with " + text(error));
        }
    }

    private static void pipe(TopologyTestDriver driver, JsonNode step) {
        Headers headers = new RecordHeaders();
        for (JsonNode header : step.get("headers")) {
            headers.add(header.get(0).asText(), bytes(header.get(1)));
        }
        driver.createInputTopic(step.get("topic").asText(), new ByteArraySerializer(), new ByteArraySerializer())
            .pipeInput(new TestRecord<>(
                bytes(step.get("key")), bytes(step.get("value")), headers, step.get("timestamp").asLong()
            ));
    }

    private static void read(TopologyTestDriver driver, ObjectNode outputs) {
        for (String topic : new TreeSet<>(driver.producedTopicNames())) {
            ArrayNode rows = JSON.createArrayNode();
            for (TestRecord<byte[], byte[]> each
                : driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer())
                    .readRecordsToList()) {
                ArrayNode row = rows.addArray().add(each.key()).add(each.value()).add(each.timestamp());
                ArrayNode headers = row.addArray();
                for (Header header : each.headers()) {
                    headers.addArray().add(header.key()).add(header.value());
                }
            }
            if (!rows.isEmpty()) {
                outputs.set(topic, rows);
            }
        }
    }

    private static Properties settings(JsonNode request) {
        Properties settings = new Properties();
        request.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    private static String name(JsonNode request) {
        return request.get("topology").asText();
    }

    private static byte[] bytes(JsonNode text) {
        try {
            return text.isNull() ? null : text.binaryValue();
        } catch (IOException error) {
            throw new IllegalArgumentException(error);
        }
    }

    private static String text(Throwable error) {
        Throwable root = error;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        return root == error ? error.toString() : error + ", as " + root;
    }
}
