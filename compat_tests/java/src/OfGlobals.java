import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** Global tables and stores, and what reads them, as of_globals.py has them. */
final class OfGlobals {
    private OfGlobals() {}

    static void add() {
        Topologies.dsl("global_join_no_keys",
            b -> left(b).join(right(b), OfGlobals::letter, OfStreamJoins::both).to("out"));
        Topologies.dsl("global_left_join_no_keys",
            b -> left(b).leftJoin(right(b), OfGlobals::letter, OfStreamJoins::both).to("out"));
        Topologies.dsl("global_join_rekeyed", b -> left(b).selectKey((k, v) -> v)
            .join(right(b), (k, v) -> k, OfStreamJoins::both).groupByKey().count().toStream()
            .to("out", Topologies.longs()));
        Topologies.dsl("global_left_join_before_left_join", OfGlobals::relaxed);
        Topologies.dsl("global_join_options", b -> left(b).leftJoin(
            b.globalTable("right", Consumed.<String, String>as("rights"),
                Materialized.as(Stores.inMemoryKeyValueStore("everywhere"))),
            (k, v) -> v, OfStreamJoins::both, Named.as("joining")).to("out"));
        Topologies.dsl("global_join_two", b -> left(b)
            .join(right(b), (k, v) -> v, OfStreamJoins::both)
            .leftJoin(b.<String, String>globalTable("third"), (k, v) -> k, OfStreamJoins::both).to("out"));
        Topologies.dsl("global_join_null_results",
            b -> left(b).leftJoin(right(b), (k, v) -> v, (l, r) -> r == null ? null : l + r).to("out"));
        Topologies.dsl("global_table_read", OfGlobals::read);
        Topologies.dsl("global_table_written", OfGlobals::written);
        Topologies.dsl("global_store_of_many_writes", OfGlobals::manyWrites);
        Topologies.dsl("global_store_timestamped", OfGlobals::timestamped);
        Topologies.api("global_store_api", OfGlobals::api);
    }

    private static KStream<String, String> left(StreamsBuilder builder) {
        return builder.stream("left");
    }

    private static GlobalKTable<String, String> right(StreamsBuilder builder) {
        return builder.globalTable("right");
    }

    /** The first letter, null without any. */
    private static String letter(String key, String value) {
        return value == null ? null : OfTables.letter(value);
    }

    /** Records without a key pass the repartition topic of the second join. */
    private static void relaxed(StreamsBuilder builder) {
        left(builder).selectKey(OfGlobals::letter).leftJoin(right(builder), (k, v) -> k, OfStreamJoins::both)
            .leftJoin(builder.<String, String>table("third"), OfStreamJoins::both).to("out");
    }

    private static StoreBuilder<KeyValueStore<String, String>> store(String name) {
        return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), Topologies.TEXT, Topologies.TEXT);
    }

    /** What a processor finds in the table, with its time. */
    private static void read(StreamsBuilder builder) {
        builder.globalTable("right", Topologies.texts("everywhere"));
        left(builder).process(() -> new ContextualProcessor<String, String, String, String>() {
            @Override
            public void process(Record<String, String> record) {
                TimestampedKeyValueStore<String, String> rows = context().getStateStore("everywhere");
                StringBuilder told = new StringBuilder();
                try (KeyValueIterator<String, ValueAndTimestamp<String>> all = rows.reverseRange(null, record.key())) {
                    all.forEachRemaining(
                        each -> told.append(each.key).append(each.value.value()).append(each.value.timestamp()));
                }
                ValueAndTimestamp<String> row = record.key() == null ? null : rows.get(record.key());
                context().forward(record.withValue(
                    told + (row == null ? " none" : " " + row.value() + " at " + row.timestamp())));
            }
        }).to("out");
    }

    /** A record of the stream becomes a row before the next one is joined. */
    private static void written(StreamsBuilder builder) {
        KStream<String, String> left = left(builder);
        left.filter((k, v) -> v != null && v.startsWith("a")).to("right");
        left.leftJoin(right(builder), (k, v) -> k, OfStreamJoins::both).to("out");
    }

    /** Each record of the topic leads to several writes of the store. */
    private static final class Many extends ContextualProcessor<String, String, Void, Void> {
        private KeyValueStore<String, String> store;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            super.init(context);
            store = context.getStateStore("many");
            store.put("begun", context.recordMetadata().isPresent() ? "by a record" : "by none");
        }

        @Override
        public void process(Record<String, String> record) {
            if (record.key() == null) {
                store.delete("begun");
                return;
            }
            store.put(record.key(), record.value());
            store.put(record.key() + "'", record.value() == null ? "deleted" : record.value() + record.timestamp());
            store.putIfAbsent("first", record.key() + context().recordMetadata().get().offset());
        }
    }

    private static final class Telling extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            KeyValueStore<String, String> store = context().getStateStore("many");
            context().forward(record.withValue(OfProcessors.told(store.all()) + store.get("first")));
        }
    }

    private static void manyWrites(StreamsBuilder builder) {
        left(builder).process(Telling::new).to("out");
        builder.addGlobalStore(
            store("many").withLoggingDisabled(), "right", Consumed.with(Topologies.TEXT, Topologies.TEXT), Many::new);
    }

    private static void timestamped(StreamsBuilder builder) {
        builder.addGlobalStore(
            Stores.timestampedKeyValueStoreBuilder(
                Stores.persistentTimestampedKeyValueStore("times"), Topologies.TEXT, Topologies.TEXT
            ).withLoggingDisabled(),
            "right", Consumed.<String, String>as("rights"),
            () -> new ContextualProcessor<String, String, Void, Void>() {
                @Override
                public void process(Record<String, String> record) {
                    TimestampedKeyValueStore<String, String> store = context().getStateStore("times");
                    if (record.key() != null) {
                        store.put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp() + 5));
                    }
                }
            });
        left(builder).process(() -> new ContextualProcessor<String, String, String, String>() {
            @Override
            public void process(Record<String, String> record) {
                TimestampedKeyValueStore<String, String> store = context().getStateStore("times");
                ValueAndTimestamp<String> row = record.key() == null ? null : store.get(record.key());
                context().forward(record.withValue(row == null ? null : row.value() + " at " + row.timestamp()));
            }
        }).to("out");
    }

    private static Topology api() {
        Topology topology = new Topology();
        topology.addSource("lefts", "left");
        topology.addGlobalStore(store("many").withLoggingDisabled(), "rights", new StringDeserializer(),
            new StringDeserializer(), "right", "keeping", Many::new);
        topology.addProcessor("telling", Telling::new, "lefts");
        return topology.addSink("out", "out", "telling");
    }
}
