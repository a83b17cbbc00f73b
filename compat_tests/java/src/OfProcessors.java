import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.Punctuator;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** Processors, as of_processors.py has them. */
final class OfProcessors {
    /** The wall clock before the first step, as in cases.py. */
    private static final long WALL_MS = 1_700_000_000_000L;

    private OfProcessors() {}

    static void add() {
        Topologies.dsl("process", b -> stored(b, store("seen")).process(Remembering::new, "seen").to("out"));
        Topologies.dsl("process_values", OfProcessors::processValues);
        Topologies.dsl("process_cached_store", OfProcessors::cachedStore);
        Topologies.dsl("process_unlogged_store", OfProcessors::unloggedStore);
        Topologies.dsl("process_timestamped_store", OfProcessors::timestampedStore);
        Topologies.dsl("store_calls", b -> stored(b, store("seen")).process(Calling::new, "seen").to("out"));
        Topologies.dsl("store_scans", b -> stored(b, store("seen")).process(Scanning::new, "seen").to("out"));
        Topologies.dsl("records_changed", OfProcessors::recordsChanged);
        Topologies.dsl("stream_time_punctuation", b -> punctuated(b, PunctuationType.STREAM_TIME, null));
        Topologies.dsl("wall_clock_punctuation", b -> punctuated(b, PunctuationType.WALL_CLOCK_TIME, null));
        Topologies.dsl("cancelled_punctuation", OfProcessors::cancelledPunctuation);
        Topologies.api("processor_api", OfProcessors::processorApi);
        Topologies.dsl("process_that_brings_its_store", b -> OfStreams.in(b).process(new Brings()).to("out"));
        Topologies.dsl("process_values_that_brings_its_store",
            b -> OfStreams.in(b).processValues(new FormerRow(), Named.as("former")).to("out"));
        Topologies.api("processor_api_that_brings_its_store", () -> new Topology().addSource("source", "in")
            .addProcessor("remembering", new Brings(), "source").addSink("out", "out", "remembering"));
        Topologies.dsl("anchored_stream_time_punctuation", b -> punctuated(b, PunctuationType.STREAM_TIME, 7L));
        Topologies.dsl("anchored_wall_clock_punctuation",
            b -> punctuated(b, PunctuationType.WALL_CLOCK_TIME, WALL_MS - 13));
        Topologies.dsl("anchored_punctuation_to_come",
            b -> punctuated(b, PunctuationType.WALL_CLOCK_TIME, WALL_MS + 8));
    }

    /** Records of texts in and out. */
    abstract static class Texts extends ContextualProcessor<String, String, String, String> {}

    static StoreBuilder<KeyValueStore<String, String>> store(String name) {
        return Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), Topologies.TEXT, Topologies.TEXT);
    }

    static KStream<String, String> stored(StreamsBuilder builder, StoreBuilder<?> store) {
        return OfStreams.in(builder.addStateStore(store));
    }

    /** What was seen of a key so far, then the record; null deletes. */
    private static final class Remembering extends Texts {
        @Override
        public void process(Record<String, String> record) {
            KeyValueStore<String, String> store = context().getStateStore("seen");
            if (record.key() != null) {
                String old = store.get(record.key());
                context().forward(record.withValue("seen " + old));
                store.put(record.key(), record.value() == null || old == null
                    ? record.value() : OfStreams.append(old, record.value()));
            }
            context().forward(record);
        }
    }

    private static void processValues(StreamsBuilder builder) {
        stored(builder, store("seen")).processValues(() -> new ContextualFixedKeyProcessor<String, String, String>() {
            @Override
            public void process(FixedKeyRecord<String, String> record) {
                KeyValueStore<String, String> store = context().getStateStore("seen");
                if (record.key() != null) {
                    context().forward(record.withValue(store.get(record.key())).withTimestamp(record.timestamp() + 1));
                    store.put(record.key(), record.value());
                }
            }
        }, Named.as("values"), "seen").groupByKey().count().toStream().to("out", Topologies.longs());
    }

    private static void cachedStore(StreamsBuilder builder) {
        stored(builder, store("seen").withCachingEnabled()).process(Remembering::new, "seen").to("out");
    }

    private static void unloggedStore(StreamsBuilder builder) {
        StoreBuilder<KeyValueStore<String, String>> store = Stores.keyValueStoreBuilder(
            Stores.inMemoryKeyValueStore("seen"), Topologies.TEXT, Topologies.TEXT);
        stored(builder, store.withLoggingDisabled()).process(Remembering::new, "seen").to("out");
    }

    private static void timestampedStore(StreamsBuilder builder) {
        stored(builder, Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore("rows"), Topologies.TEXT, Topologies.TEXT
        )).process(() -> new Texts() {
            @Override
            public void process(Record<String, String> record) {
                TimestampedKeyValueStore<String, String> store = context().getStateStore("rows");
                if (record.key() == null) {
                    return;
                }
                ValueAndTimestamp<String> row = store.get(record.key());
                context().forward(record.withValue(row == null ? "none" : row.value() + " at " + row.timestamp()));
                store.put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp() + 3));
                StringBuilder rows = new StringBuilder();
                try (KeyValueIterator<String, ValueAndTimestamp<String>> all = store.reverseRange("a", null)) {
                    all.forEachRemaining(each -> rows.append(each.key).append(each.value.timestamp()).append(' '));
                }
                context().forward(record.withValue(rows.toString()));
            }
        }, "rows").to("out");
    }

    /** All that a store can be asked to write; a record's value chooses. */
    private static final class Calling extends Texts {
        @Override
        public void process(Record<String, String> record) {
            KeyValueStore<String, String> store = context().getStateStore("seen");
            String key = record.key();
            String value = record.value();
            if (key == null) {
                return;
            }
            String said;
            if (value == null || value.isEmpty()) {
                said = "deleted " + store.delete(key);
            } else if (value.startsWith("a")) {
                said = "present " + store.putIfAbsent(key, value);
            } else {
                store.putAll(List.of(KeyValue.pair(key, value), KeyValue.pair(key + "'", value)));
                said = "put " + store.get(key + "'");
            }
            context().forward(record.withValue(said));
        }
    }

    /** Puts each record, then tells the store's entries in several orders. */
    private static final class Scanning extends Texts {
        @Override
        public void process(Record<String, String> record) {
            KeyValueStore<String, String> store = context().getStateStore("seen");
            if (record.key() == null) {
                return;
            }
            store.put(record.key(), record.value());
            context().forward(record.withValue("all " + told(store.all())));
            context().forward(record.withValue("reverse " + told(store.reverseAll())));
            context().forward(record.withValue("range " + told(store.range("a", "b"))));
            context().forward(record.withValue("to " + told(store.range(null, record.key()))));
            context().forward(record.withValue("from " + told(store.reverseRange(record.key(), null))));
            context().forward(record.withValue("prefix " + told(store.prefixScan("a", new StringSerializer()))));
        }
    }

    static String told(KeyValueIterator<String, String> entries) {
        StringBuilder text = new StringBuilder();
        try (entries) {
            entries.forEachRemaining(each -> text.append(each.key).append('=').append(each.value).append(' '));
        }
        return text.toString();
    }

    private static void recordsChanged(StreamsBuilder builder) {
        OfStreams.in(builder).process(() -> new Texts() {
            @Override
            public void process(Record<String, String> record) {
                Record<String, String> marked = record.withHeaders(new RecordHeaders().add("x", new byte[] {1}));
                context().forward(marked.withKey("marked"));
                context().forward(record.withTimestamp(record.timestamp() + 5).withKey("later"));
                context().forward(record.withHeaders(new RecordHeaders()).withKey("bare"));
                context().forward(record.withHeaders(marked.headers().add("y", null)).withValue(null));
                context().forward(record);
            }
        }).to("out");
        OfStreams.in(builder).process(() -> new Texts() {
            @Override
            public void process(Record<String, String> record) {
                context().forward(record.withTimestamp((record.timestamp() + 1) / 2));
            }
        }).groupByKey().reduce(OfStreams::append).toStream().to("reduced");
    }

    private static void punctuated(StreamsBuilder builder, PunctuationType kind, Long start) {
        stored(builder, store("seen")).process(() -> new Texts() {
            @Override
            public void init(ProcessorContext<String, String> context) {
                super.init(context);
                Punctuator tick = now -> {
                    KeyValueStore<String, String> store = context.getStateStore("seen");
                    String said = told(store.all()) + "of " + context.currentStreamTimeMs();
                    context.forward(new Record<>("tick", said, now));
                    store.put("tick", Long.toString(now));
                };
                if (start == null) {
                    context.schedule(Duration.ofMillis(10), kind, tick);
                } else {
                    context.schedule(Instant.ofEpochMilli(start), Duration.ofMillis(10), kind, tick);
                }
            }

            @Override
            public void process(Record<String, String> record) {
                KeyValueStore<String, String> store = context().getStateStore("seen");
                if (record.key() != null) {
                    store.put(record.key(), record.value());
                }
                String metadata = context().recordMetadata().map(at -> at.topic() + "/" + at.offset()).orElse("none");
                context().forward(record.withValue(context().currentStreamTimeMs() + " of " + metadata));
            }
        }, "seen").to("out");
    }

    /** A value "a" begins to call each 5 ms of stream time, "b" each 7 ms by the wall clock; again or "del" ends it. */
    private static void cancelledPunctuation(StreamsBuilder builder) {
        OfStreams.in(builder).process(() -> new Texts() {
            private final Map<PunctuationType, Cancellable> schedules = new HashMap<>();

            @Override
            public void process(Record<String, String> record) {
                if ("a".equals(record.value())) {
                    begin(Duration.ofMillis(5), PunctuationType.STREAM_TIME);
                } else if ("b".equals(record.value())) {
                    begin(Duration.ofMillis(7), PunctuationType.WALL_CLOCK_TIME);
                } else if ("del".equals(record.value())) {
                    schedules.values().forEach(Cancellable::cancel);
                    schedules.clear();
                }
                context().commit();
            }

            private void begin(Duration interval, PunctuationType kind) {
                if (schedules.containsKey(kind)) {
                    schedules.remove(kind).cancel();
                    return;
                }
                schedules.put(kind, context().schedule(interval, kind, now -> {
                    boolean known = context().recordMetadata().map(RecordMetadata::topic).isPresent();
                    context().forward(new Record<>(kind.toString(), known ? "of a record" : "none", now));
                }));
            }
        }).to("out");
    }

    private static Topology processorApi() {
        Topology topology = new Topology();
        topology.addSource("lefts", "left").addSource("rights", "right");
        topology.addProcessor("both", () -> new Texts() {
            @Override
            public void process(Record<String, String> record) {
                if (record.value() == null) {
                    context().forward(record, "nulls");
                } else if (record.value().startsWith("a")) {
                    context().forward(record, "remembering");
                } else {
                    context().forward(record);
                }
            }
        }, "lefts", "rights");
        topology.addProcessor("remembering", Remembering::new, "both");
        topology.addProcessor("too", Remembering::new, "rights");
        topology.addStateStore(store("seen"), "remembering", "too");
        topology.addSink("nulls", "nulls", "both");
        topology.addSink("out", "out", "remembering", "too");
        topology.addSink("all", "all", (topic, key, value, partitions) -> Optional.of(Set.of(0)), "both");
        return topology;
    }

    static void rowsReadByAProcessor(StreamsBuilder builder) {
        builder.table("rows", Topologies.texts("rows"));
        OfStreams.in(builder).processValues(LookingUp::new, "rows").to("out");
    }

    private static final class Brings implements ProcessorSupplier<String, String, String, String> {
        @Override
        public Processor<String, String, String, String> get() {
            return new Remembering();
        }

        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(store("seen"));
        }
    }

    private static final class FormerRow implements FixedKeyProcessorSupplier<String, String, String> {
        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(Stores.timestampedKeyValueStoreBuilder(
                Stores.persistentTimestampedKeyValueStore("rows"), Topologies.TEXT, Topologies.TEXT));
        }

        @Override
        public FixedKeyProcessor<String, String, String> get() {
            return new ContextualFixedKeyProcessor<>() {
                @Override
                public void process(FixedKeyRecord<String, String> record) {
                    if (record.key() == null) {
                        return;
                    }
                    TimestampedKeyValueStore<String, String> rows = context().getStateStore("rows");
                    ValueAndTimestamp<String> former = rows.get(record.key());
                    rows.put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp()));
                    context().forward(record.withValue(
                        former == null ? "none" : former.value() + " at " + former.timestamp()));
                }
            };
        }
    }

    private static final class LookingUp extends ContextualFixedKeyProcessor<String, String, String> {
        @Override
        public void process(FixedKeyRecord<String, String> record) {
            TimestampedKeyValueStore<String, String> rows = context().getStateStore("rows");
            ValueAndTimestamp<String> row = record.key() == null ? null : rows.get(record.key());
            context().forward(record.withValue(row == null ? null : row.value() + " at " + row.timestamp()));
        }
    }
}
