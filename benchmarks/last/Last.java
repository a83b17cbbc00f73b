import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** Keeps each key's last value, and puts it out, on Kafka Streams. `work`: the producer's `linger.ms`, if a number. */
public final class Last {
    public static void main(String[] arguments) {
        Map<String, String> job = Peer.job(arguments);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.get("input"), Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .groupByKey()
            .aggregate(
                () -> new byte[0],
                (key, value, last) -> value,
                Materialized.<String, byte[], KeyValueStore<Bytes, byte[]>>as("last")
                    .withKeySerde(Serdes.String())
                    .withValueSerde(Serdes.ByteArray()))
            .toStream()
            .to(job.get("output"), Produced.with(Serdes.String(), Serdes.ByteArray()));
        Properties settings = Peer.settings(job);
        if (!job.get("work").equals("-")) {
            settings.put(StreamsConfig.producerPrefix("linger.ms"), job.get("work"));
        }
        Peer.streams(builder.build(), settings).start();
    }
}
