import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

/** A store that is restored by Kafka Streams. Arguments: name=value, see job.py. */
public final class Restore {
    public static void main(String[] arguments) {
        Map<String, String> job = Arrays.stream(arguments)
            .map(argument -> argument.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.get("input"), Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey()
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("totals"))
            .toStream()
            .to(job.get("output"), Produced.with(Serdes.String(), Serdes.Long()));
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, job.get("application_id"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, job.get("bootstrap_servers"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, job.get("guarantee"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, job.get("commit_interval_ms"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, job.get("state_dir"));
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
                System.out.println("RESTORE STARTED " + System.currentTimeMillis() + " " + (end - start));
            }

            @Override
            public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

            @Override
            public void onRestoreEnd(TopicPartition partition, String store, long total) {
                System.out.println("RESTORE ENDED " + System.currentTimeMillis() + " " + total);
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
