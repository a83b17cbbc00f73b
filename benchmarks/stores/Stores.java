import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.internals.RocksDBStore;

/** Tasks that write each record into several stores, on Kafka Streams; it prints what app.py prints. */
public final class Stores {
    /** The store of Stores.persistentKeyValueStore, whose opening is timed. */
    private static final class Timed extends RocksDBStore {
        private Timed(String name) {
            super(name, "rocksdb");
        }

        @Override
        public void init(StateStoreContext context, StateStore root) {
            long began = System.nanoTime();
            super.init(context, root);
            System.out.println("DATABASE OPENED " + (System.nanoTime() - began) / 100_000 / 10.0);
        }
    }

    private static final class Supplier implements KeyValueBytesStoreSupplier {
        private final String name;

        private Supplier(String name) {
            this.name = name;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return new Timed(name);
        }

        @Override
        public String metricsScope() {
            return "rocksdb";
        }
    }

    private static final class InEachStore extends ContextualProcessor<String, byte[], String, byte[]> {
        private final List<String> names;
        private final List<KeyValueStore<String, byte[]>> stores = new ArrayList<>();
        private boolean begun = false;

        private InEachStore(List<String> names) {
            this.names = names;
        }

        @Override
        public void init(ProcessorContext<String, byte[]> context) {
            super.init(context);
            names.forEach(name -> stores.add(context.getStateStore(name)));
        }

        @Override
        public void process(Record<String, byte[]> record) {
            if (!begun) {
                begun = true;
                System.out.println("TASK PROCESSES " + System.currentTimeMillis());
            }
            stores.forEach(store -> store.put(record.key(), record.value()));
            context().forward(record);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> job = Peer.job(arguments);
        List<String> names = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(job.get("work")); number++) {
            names.add("store-" + number);
        }
        Topology topology = new Topology()
            .addSource("in", Serdes.String().deserializer(), Serdes.ByteArray().deserializer(), job.get("input"))
            .addProcessor("in-each-store", () -> new InEachStore(names), "in");
        names.forEach(name -> topology.addStateStore(
            org.apache.kafka.streams.state.Stores.keyValueStoreBuilder(
                new Supplier(name), Serdes.String(), Serdes.ByteArray()),
            "in-each-store"));
        topology.addSink(
            "out", job.get("output"), Serdes.String().serializer(), Serdes.ByteArray().serializer(), "in-each-store");
        Properties settings = Peer.settings(job);
        settings.put(StreamsConfig.ACCEPTABLE_RECOVERY_LAG_CONFIG, Long.MAX_VALUE);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 10_000);
        settings.put(StreamsConfig.METRICS_SAMPLE_WINDOW_MS_CONFIG, 1_000);
        if (!job.get("state_dir").endsWith("second")) {
            settings.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, "first");
        }
        KafkaStreams streams = Peer.streams(topology, settings);
        streams.start();
        while (true) {
            Thread.sleep(1_000);
            tell(streams);
        }
    }

    /** The longest time between two polls of the consumers, in the last two seconds. */
    private static void tell(KafkaStreams streams) {
        double longest = 0;
        for (Map.Entry<MetricName, ? extends Metric> metric : streams.metrics().entrySet()) {
            boolean main = metric.getKey().tags().getOrDefault("client-id", "").matches(".*\\d-consumer");
            if (main && metric.getKey().name().equals("time-between-poll-max")) {
                double value = (Double) metric.getValue().metricValue();
                longest = Double.isNaN(value) ? longest : Math.max(longest, value / 1000);
            }
        }
        System.out.printf(
            java.util.Locale.ROOT,
            "%.3f INFO polls: looks at the group at most %.4f s apart, %.4f s of it outside Kafka's calls%n",
            System.currentTimeMillis() / 1000.0, longest, longest);
    }
}
