import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.Cache;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;

/** What the programs on Kafka Streams have in common. */
final class Peer {
    private Peer() {}

    /** Arguments: name=value, see job.py. */
    static Map<String, String> job(String[] arguments) {
        return Arrays.stream(arguments)
            .map(argument -> argument.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    }

    /** All that isn't default. */
    static Properties settings(Map<String, String> job) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, job.get("application_id"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, job.get("bootstrap_servers"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, job.get("guarantee"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, job.get("commit_interval_ms"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, job.get("state_dir"));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, job.get("threads"));
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, job.get("cache_bytes"));
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // As much in a batch as the others have: its own 16 KB would cost the broker more, which shares the cores.
        settings.put(StreamsConfig.producerPrefix("batch.size"), "1000000");
        settings.put(StreamsConfig.producerPrefix("buffer.memory"), "134217728");
        if (job.get("settings").equals("tuned")) {
            tune(settings);
        }
        return settings;
    }

    /** More in a fetch, in a buffer, in memory before it is written, and compressed: what its guides name for throughput. */
    private static void tune(Properties settings) {
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), "10000");
        settings.put(StreamsConfig.consumerPrefix("max.partition.fetch.bytes"), "8388608");
        settings.put(StreamsConfig.consumerPrefix("receive.buffer.bytes"), "1048576");
        settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, "10000");
        settings.put(StreamsConfig.producerPrefix("compression.type"), "lz4");
        settings.put(StreamsConfig.producerPrefix("send.buffer.bytes"), "1048576");
        settings.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, Tuned.class);
    }

    /** Memtables of 64 MB in place of 16, blocks of 256 MB kept in place of 50. */
    public static final class Tuned implements RocksDBConfigSetter {
        private static final Cache BLOCKS = new LRUCache(256L * 1024 * 1024);

        @Override
        public void setConfig(String store, Options options, Map<String, Object> configs) {
            BlockBasedTableConfig tables = (BlockBasedTableConfig) options.tableFormatConfig();
            tables.setBlockCache(BLOCKS);
            options.setTableFormatConfig(tables);
            options.setWriteBufferSize(64L * 1024 * 1024);
        }

        @Override
        public void close(String store, Options options) {}
    }

    static KafkaStreams streams(Topology topology, Properties settings) {
        return streams(topology, settings, () -> {});
    }

    /** `closed` is called at the end of the process, once all threads have ended. */
    static KafkaStreams streams(Topology topology, Properties settings, Runnable closed) {
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            closed.run();
        }));
        return streams;
    }

    /** JSON by Jackson, of a record. */
    static <T> Serde<T> json(Class<T> type) {
        ObjectMapper mapper = new ObjectMapper();
        ObjectReader reader = mapper.readerFor(type);
        ObjectWriter writer = mapper.writerFor(type);
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return value == null ? null : writer.writeValueAsBytes(value);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            },
            (topic, data) -> {
                try {
                    return data == null ? null : reader.readValue(data);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
    }
}
