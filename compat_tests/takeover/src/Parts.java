import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** The parts of the application, each the twin of the one of its name in parts.py. */
final class Parts {
    static final Serde<String> TEXT = Serdes.String();
    static final Serde<Long> LONG = Serdes.Long();

    private static final Duration HOUR = Duration.ofHours(1);
    private static final TimeWindows WINDOWS =
        TimeWindows.ofSizeAndGrace(Duration.ofMillis(200), Duration.ofMillis(100));
    private static final SessionWindows SESSIONS =
        SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(100), Duration.ofMillis(100));
    private static final JoinWindows NEAR =
        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(50), Duration.ofMillis(50));

    private static final Map<String, BiConsumer<StreamsBuilder, Topics>> ALL = new LinkedHashMap<>();

    static {
        ALL.put("windows", Parts::windows);
        ALL.put("sessions", Parts::sessions);
        ALL.put("closed-sessions", Parts::closedSessions);
        ALL.put("outer-join", Parts::outerJoin);
        ALL.put("table-join", Parts::tableJoin);
        ALL.put("tables", Parts::tables);
        ALL.put("aggregate", Parts::aggregate);
        ALL.put("regrouped", Parts::regrouped);
        ALL.put("reduced", Parts::reduced);
        ALL.put("processor", Parts::processor);
        ALL.put("suppressed", Parts::suppressed);
        ALL.put("held", Parts::held);
        ALL.put("cogrouped", Parts::cogrouped);
        ALL.put("global-join", Parts::globalJoin);
        ALL.put("versioned-join", Parts::versionedJoin);
        ALL.put("foreign-key", Parts::foreignKey);
        ALL.put("waiting-join", Parts::waitingJoin);
    }

    private Parts() {}

    static Topology topology(List<String> names, Topics topics) {
        StreamsBuilder builder = new StreamsBuilder();
        for (String name : names) {
            if (!ALL.containsKey(name)) {
                throw new IllegalArgumentException("there is no part " + name + "; there are " + ALL.keySet());
            }
            ALL.get(name).accept(builder, topics.of(name));
        }
        return builder.build();
    }

    private static KStream<String, String> braked(StreamsBuilder builder, Topics topics, String suffix) {
        return builder.<String, String>stream(topics.in(suffix)).processValues(() -> new Brake(topics.pauseMicros));
    }

    private static KGroupedStream<String, String> grouped(StreamsBuilder builder, Topics topics) {
        return braked(builder, topics, "in").groupByKey(Grouped.with(TEXT, TEXT));
    }

    private static void out(KStream<String, String> stream, Topics topics) {
        stream.to(topics.out(), Produced.with(TEXT, TEXT));
    }

    /** Updates under the key without its window, so that their order is that of one key. */
    private static void windowed(KTable<Windowed<String>, Long> table, Topics topics) {
        out(table.toStream().map((key, count) -> KeyValue.pair(key.key(),
            key.window().start() + "/" + key.window().end() + "=" + count)), topics);
    }

    private static void windows(StreamsBuilder builder, Topics topics) {
        windowed(grouped(builder, topics).windowedBy(WINDOWS).emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("per-window").withRetention(HOUR)), topics);
    }

    private static void sessions(StreamsBuilder builder, Topics topics) {
        windowed(grouped(builder, topics).windowedBy(SESSIONS)
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("per-session").withRetention(HOUR)),
            topics);
    }

    private static void closedSessions(StreamsBuilder builder, Topics topics) {
        windowed(grouped(builder, topics).windowedBy(SESSIONS).emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>with(TEXT, LONG).withRetention(HOUR)),
            topics);
    }

    private static void outerJoin(StreamsBuilder builder, Topics topics) {
        KStream<String, String> left = braked(builder, topics, "left");
        out(left.outerJoin(braked(builder, topics, "right"), Parts::both, NEAR), topics);
    }

    private static void tableJoin(StreamsBuilder builder, Topics topics) {
        KTable<String, String> table = builder.table(topics.in("table"));
        out(braked(builder, topics, "in").leftJoin(table, Parts::both), topics);
    }

    private static void tables(StreamsBuilder builder, Topics topics) {
        KTable<String, String> left = builder.table(topics.in("left"));
        out(left.outerJoin(builder.<String, String>table(topics.in("right")), Parts::both).toStream(), topics);
    }

    private static void aggregate(StreamsBuilder builder, Topics topics) {
        out(braked(builder, topics, "in")
            .groupBy((key, value) -> key + "/" + value.charAt(value.length() - 1), Grouped.with(TEXT, TEXT))
            .aggregate(() -> "", (key, value, text) -> last(text) + value, Materialized.with(TEXT, TEXT))
            .toStream(), topics);
    }

    private static void regrouped(StreamsBuilder builder, Topics topics) {
        builder.<String, String>table(topics.in("table"), Materialized.as("rows"))
            .groupBy((key, value) -> KeyValue.pair(key + "/" + value.charAt(value.length() - 1), value),
                Grouped.<String, String>as("by-digit").withKeySerde(TEXT).withValueSerde(TEXT))
            .count(Materialized.as("per-digit"))
            .toStream().to(topics.out(), Produced.with(TEXT, LONG));
    }

    private static void reduced(StreamsBuilder builder, Topics topics) {
        out(grouped(builder, topics).reduce((text, value) -> last(text) + value,
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("texts")
                .withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY)).toStream(), topics);
    }

    private static void processor(StreamsBuilder builder, Topics topics) {
        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("seen"), TEXT, TEXT));
        out(braked(builder, topics, "in").process(Seen::new, "seen"), topics);
    }

    private static void suppressed(StreamsBuilder builder, Topics topics) {
        windowed(grouped(builder, topics).windowedBy(WINDOWS)
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("held-per-window").withRetention(HOUR))
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), topics);
    }

    private static void held(StreamsBuilder builder, Topics topics) {
        out(builder.<String, String>table(topics.in("table"))
            .suppress(Suppressed.<String>untilTimeLimit(Duration.ofMillis(300), BufferConfig.unbounded())
                .withName("held"))
            .toStream(), topics);
    }

    private static void cogrouped(StreamsBuilder builder, Topics topics) {
        KGroupedStream<String, String> left = braked(builder, topics, "left").groupByKey(Grouped.with(TEXT, TEXT));
        KGroupedStream<String, String> right = braked(builder, topics, "right").groupByKey(Grouped.with(TEXT, TEXT));
        out(left.<String>cogroup((key, value, text) -> last(text) + value)
            .cogroup(right, (key, value, text) -> last(text) + "r" + value)
            .aggregate(() -> "", Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("cogrouped")
                .withKeySerde(TEXT).withValueSerde(TEXT))
            .toStream(), topics);
    }

    private static void globalJoin(StreamsBuilder builder, Topics topics) {
        GlobalKTable<String, String> table = builder.globalTable(topics.in("table"),
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("everywhere")
                .withKeySerde(TEXT).withValueSerde(TEXT));
        out(braked(builder, topics, "in").leftJoin(table, (key, value) -> key, Parts::both), topics);
    }

    private static void versionedJoin(StreamsBuilder builder, Topics topics) {
        out(braked(builder, topics, "in").leftJoin(versioned(builder, topics, "versions"), Parts::both), topics);
    }

    private static void waitingJoin(StreamsBuilder builder, Topics topics) {
        KTable<String, String> table = versioned(builder, topics, "awaited");
        out(braked(builder, topics, "in").leftJoin(table, Parts::both,
            Joined.<String, String, String>with(TEXT, TEXT, TEXT).withGracePeriod(Duration.ofMillis(50))), topics);
    }

    private static void foreignKey(StreamsBuilder builder, Topics topics) {
        KTable<String, String> left = builder.table(topics.in("left"));
        KTable<String, String> right = builder.table(topics.in("right"));
        out(left.<String, String, String>join(right, value -> value.split("-")[0], Parts::both).toStream(), topics);
    }

    private static KTable<String, String> versioned(StreamsBuilder builder, Topics topics, String store) {
        return builder.table(topics.in("table"), Materialized.<String, String>as(
            Stores.persistentVersionedKeyValueStore(store, HOUR)).withKeySerde(TEXT).withValueSerde(TEXT));
    }

    private static String both(String left, String right) {
        return left + "&" + right;
    }

    /** The end of a text; its characters are those of ASCII. */
    private static String last(String text) {
        return text.substring(Math.max(0, text.length() - 30));
    }

    /** Forwards what was seen of the key; a value that ends with 0 has it forgotten. */
    private static final class Seen implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, String> seen;

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            seen = context.getStateStore("seen");
        }

        @Override
        public void process(Record<String, String> record) {
            String before = seen.get(record.key());
            context.forward(record.withValue(before + "+" + record.value()));
            if (record.value().endsWith("0")) {
                seen.delete(record.key());
            } else {
                seen.put(record.key(), (before == null ? "" : last(before)) + record.value());
            }
        }
    }
}
