import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueMapper;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** A plan (plans.py) as a topology; plan_program.py makes the same of it, operation by operation. */
@SuppressWarnings("unchecked")
final class Plans {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Topologies.TEXT;
    private static final Serde<Long> LONG = Topologies.LONG;

    private static final Map<String, ValueMapper<String, String>> MAPPERS = Map.of(
        "loud", v -> v == null ? null : v + "!",
        "known", v -> v == null ? "none" : v,
        "unless_empty", v -> v == null || v.isEmpty() ? null : v,
        "first", Plans::letter);
    private static final Map<String, Predicate<String, String>> PREDICATES = Map.of(
        "has_value", (k, v) -> v != null,
        "not_b", (k, v) -> v == null || !v.startsWith("b"),
        "key_a", (k, v) -> k != null && k.startsWith("a"));
    private static final Map<String, KeyValueMapper<String, String, String>> KEYS = Map.of(
        "value", (k, v) -> v,
        "letter", (k, v) -> letter(v),
        "both", (k, v) -> k + v);
    private static final Map<String, KeyValueMapper<String, String, KeyValue<String, String>>> PAIRS = Map.of(
        "swapped", (k, v) -> KeyValue.pair(v, k),
        "by_letter", (k, v) -> KeyValue.pair(letter(v), k + v));
    private static final Map<String, TimestampExtractor> EXTRACTORS = Map.of(
        "earlier", (record, partitionTime) -> Math.max(1, record.timestamp() - 7),
        "partition_time", (record, partitionTime) -> Math.max(record.timestamp(), partitionTime));

    private final StreamsBuilder builder;
    private final List<Object> made = new ArrayList<>();
    private JsonNode op;

    private Plans(StreamsBuilder builder) {
        this.builder = builder;
    }

    /** Add the operations of a plan in text. */
    static void add(StreamsBuilder builder, String plan) {
        Plans plans = new Plans(builder);
        try {
            for (JsonNode op : JSON.readTree(plan).get("ops")) {
                plans.op = op;
                plans.made.add(plans.result());
            }
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException(error);
        }
    }

    private static String letter(String value) {
        return value == null ? null : OfTables.letter(value);
    }

    private Object result() {
        return switch (text("op")) {
            case "stream" -> op.has("extractor")
                ? builder.stream(text("topic"), Consumed.with(EXTRACTORS.get(text("extractor"))))
                : builder.stream(text("topic"));
            case "table" -> op.has("store") ? builder.table(text("topic"), rows()) : builder.table(text("topic"));
            case "global" -> builder.globalTable(text("topic"));
            case "filter", "filter_not" -> filtered(text("op").equals("filter"));
            case "map_values" -> mapped();
            case "map_values_with_key" -> mappedWithKey();
            case "map" -> stream("of").map(PAIRS.get(text("f")));
            case "select_key" -> stream("of").selectKey(KEYS.get(text("f")));
            case "flat_map_values" -> stream("of").flatMapValues(v -> OfStreams.words(v));
            case "merge" -> stream("of").merge(stream("with"));
            case "split" -> split();
            case "branch" -> ((List<Object>) of("of")).get(op.get("n").asInt());
            case "repartition" -> repartitioned();
            case "to_table" -> op.has("store") ? stream("of").toTable(rows()) : stream("of").toTable();
            case "to_stream" -> table("of").toStream();
            case "process" -> processed();
            case "process_values" -> processedValues();
            case "group_by_key" -> stream("of").groupByKey(grouped());
            case "group_by" -> stream("of").groupBy(KEYS.get(text("f")), grouped());
            case "group_rows" -> table("of").groupBy(OfTables::byLetter, grouped());
            case "windowed" -> windowed((KGroupedStream<String, String>) of("of"));
            case "count", "reduce", "aggregate" -> aggregated(of("of"));
            case "numbers" -> ((KTable<String, Long>) of("of")).mapValues(v -> v == null ? null : v.toString());
            case "suppress_windows" -> ((KTable<Windowed<String>, Object>) of("of"))
                .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()));
            case "suppress_time" -> table("of")
                .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(10), BufferConfig.unbounded()));
            case "to_texts" -> ((KTable<Windowed<String>, Object>) of("of")).toStream(OfWindows::text)
                .mapValues(v -> v == null ? null : v.toString());
            case "join_streams" -> joinedStreams();
            case "join_table" -> text("how").equals("inner")
                ? stream("of").join(table("with"), OfStreamJoins::both)
                : stream("of").leftJoin(table("with"), OfStreamJoins::both);
            case "join_global" -> joinedGlobal();
            case "join_tables" -> joinedTables();
            case "join_foreign" -> joinedForeign();
            case "to" -> to();
            default -> throw new IllegalArgumentException("there is no operation " + op);
        };
    }

    // ---- operands and options

    private String text(String name) {
        return op.get(name).asText();
    }

    private long number(String name) {
        return op.get(name).asLong();
    }

    private Object of(String name) {
        return made.get(op.get(name).asInt());
    }

    private KStream<String, String> stream(String name) {
        return (KStream<String, String>) of(name);
    }

    private KTable<String, String> table(String name) {
        return (KTable<String, String>) of(name);
    }

    private Grouped<String, String> grouped() {
        Grouped<String, String> grouped = Grouped.with(TEXT, TEXT);
        return op.has("name") ? grouped.withName(text("name")) : grouped;
    }

    private <V, S extends StateStore> Materialized<String, V, S> kept(Serde<V> values) {
        Materialized<String, V, S> kept = op.has("store")
            ? Materialized.<String, V, S>as(text("store")).withKeySerde(TEXT).withValueSerde(values)
            : Materialized.with(TEXT, values);
        kept = switch (op.has("keep") ? text("keep") : "") {
            case "uncached" -> kept.withCachingDisabled();
            case "unlogged" -> kept.withLoggingDisabled();
            case "in_memory" -> kept.withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY);
            default -> kept;
        };
        return op.has("retention") ? kept.withRetention(Duration.ofMillis(number("retention"))) : kept;
    }

    private Materialized<String, String, KeyValueStore<Bytes, byte[]>> rows() {
        return kept(TEXT);
    }

    private boolean isKept() {
        return op.has("store") || op.has("retention");
    }

    // ---- operations

    private Object filtered(boolean keep) {
        Predicate<String, String> predicate = PREDICATES.get(text("f"));
        if (of("of") instanceof KStream) {
            return keep ? stream("of").filter(predicate) : stream("of").filterNot(predicate);
        }
        if (op.has("store")) {
            return keep ? table("of").filter(predicate, rows()) : table("of").filterNot(predicate, rows());
        }
        return keep ? table("of").filter(predicate) : table("of").filterNot(predicate);
    }

    private Object mapped() {
        ValueMapper<String, String> mapper = MAPPERS.get(text("f"));
        if (of("of") instanceof KStream) {
            return stream("of").mapValues(mapper);
        }
        return op.has("store") ? table("of").mapValues(mapper, rows()) : table("of").mapValues(mapper);
    }

    private Object mappedWithKey() {
        if (of("of") instanceof KStream) {
            return stream("of").mapValues((k, v) -> k + ":" + v);
        }
        return op.has("store")
            ? table("of").mapValues((k, v) -> k + ":" + v, rows())
            : table("of").mapValues((k, v) -> k + ":" + v);
    }

    private Object split() {
        BranchedKStream<String, String> split = stream("of").split(Named.as(text("name")));
        int count = 0;
        for (JsonNode predicate : op.get("predicates")) {
            split = split.branch(PREDICATES.get(predicate.asText()), Branched.as("-" + count++));
        }
        Map<String, KStream<String, String>> branches = split.defaultBranch(Branched.as("-rest"));
        List<Object> streams = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            streams.add(branches.get(text("name") + "-" + n));
        }
        streams.add(branches.get(text("name") + "-rest"));
        return streams;
    }

    private Object repartitioned() {
        Repartitioned<String, String> how = Repartitioned.with(TEXT, TEXT);
        return stream("of").repartition(op.has("name") ? how.withName(text("name")) : how);
    }

    private Object processed() {
        String store = text("store");
        builder.addStateStore(OfProcessors.store(store));
        return stream("of").process(() -> new ContextualProcessor<String, String, String, String>() {
            @Override
            public void process(Record<String, String> record) {
                if (record.key() != null) {
                    KeyValueStore<String, String> rows = context().getStateStore(store);
                    String old = rows.get(record.key());
                    context().forward(record.withValue("seen " + old));
                    rows.put(record.key(), record.value() == null || old == null
                        ? record.value() : OfStreams.append(old, record.value()));
                }
                context().forward(record);
            }
        }, store);
    }

    private Object processedValues() {
        String store = text("store");
        builder.addStateStore(OfProcessors.store(store));
        return stream("of").processValues(() -> new ContextualFixedKeyProcessor<String, String, String>() {
            @Override
            public void process(FixedKeyRecord<String, String> record) {
                if (record.key() != null) {
                    KeyValueStore<String, String> rows = context().getStateStore(store);
                    context().forward(record.withValue(rows.get(record.key())).withTimestamp(record.timestamp() + 1));
                    rows.put(record.key(), record.value());
                }
            }
        }, store);
    }

    private Object windowed(KGroupedStream<String, String> grouped) {
        Duration size = Duration.ofMillis(number("size"));
        Duration grace = Duration.ofMillis(number("grace"));
        boolean closing = op.has("emit");
        return switch (text("shape")) {
            case "session" -> {
                SessionWindowedKStream<String, String> sessions =
                    grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(size, grace));
                yield closing ? sessions.emitStrategy(EmitStrategy.onWindowClose()) : sessions;
            }
            case "sliding" ->
                emitting(grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace)), closing);
            case "hopping" -> emitting(
                grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace).advanceBy(Duration.ofMillis(4))), closing);
            default -> emitting(grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace)), closing);
        };
    }

    private static TimeWindowedKStream<String, String> emitting(
        TimeWindowedKStream<String, String> windowed, boolean closing
    ) {
        return closing ? windowed.emitStrategy(EmitStrategy.onWindowClose()) : windowed;
    }

    private Object aggregated(Object given) {
        if (given instanceof KGroupedTable) {
            return ofRows((KGroupedTable<String, String>) given);
        }
        if (given instanceof KGroupedStream) {
            return ofStream((KGroupedStream<String, String>) given);
        }
        return given instanceof SessionWindowedKStream
            ? ofSessions((SessionWindowedKStream<String, String>) given)
            : ofWindows((TimeWindowedKStream<String, String>) given);
    }

    private Object ofRows(KGroupedTable<String, String> given) {
        return switch (text("op")) {
            case "count" -> isKept() ? given.count(kept(LONG)) : given.count();
            case "reduce" -> isKept()
                ? given.reduce(OfStreams::append, OfTables::subtract, rows())
                : given.reduce(OfStreams::append, OfTables::subtract);
            default -> isKept()
                ? given.aggregate(OfStreams::initial, OfStreams::aggregate, (k, v, a) -> OfTables.subtract(a, v), rows())
                : given.aggregate(OfStreams::initial, OfStreams::aggregate, (k, v, a) -> OfTables.subtract(a, v));
        };
    }

    private Object ofStream(KGroupedStream<String, String> given) {
        return switch (text("op")) {
            case "count" -> isKept() ? given.count(kept(LONG)) : given.count();
            case "reduce" -> isKept() ? given.reduce(OfStreams::append, rows()) : given.reduce(OfStreams::append);
            default -> isKept()
                ? given.aggregate(OfStreams::initial, OfStreams::aggregate, rows())
                : given.aggregate(OfStreams::initial, OfStreams::aggregate);
        };
    }

    private Object ofWindows(TimeWindowedKStream<String, String> given) {
        Materialized<String, String, WindowStore<Bytes, byte[]>> rows = kept(TEXT);
        return switch (text("op")) {
            case "count" -> isKept() ? given.count(kept(LONG)) : given.count();
            case "reduce" -> isKept() ? given.reduce(OfStreams::append, rows) : given.reduce(OfStreams::append);
            default -> isKept()
                ? given.aggregate(OfStreams::initial, OfStreams::aggregate, rows)
                : given.aggregate(OfStreams::initial, OfStreams::aggregate);
        };
    }

    private Object ofSessions(SessionWindowedKStream<String, String> given) {
        Materialized<String, String, SessionStore<Bytes, byte[]>> rows = kept(TEXT);
        return switch (text("op")) {
            case "count" -> isKept() ? given.count(kept(LONG)) : given.count();
            case "reduce" -> isKept() ? given.reduce(OfStreams::append, rows) : given.reduce(OfStreams::append);
            default -> isKept()
                ? given.aggregate(OfStreams::initial, OfStreams::aggregate, OfWindows::merge, rows)
                : given.aggregate(OfStreams::initial, OfStreams::aggregate, OfWindows::merge);
        };
    }

    private Object joinedStreams() {
        JoinWindows within = JoinWindows.ofTimeDifferenceAndGrace(
            Duration.ofMillis(number("before")), Duration.ofMillis(number("grace")))
            .after(Duration.ofMillis(number("after")));
        StreamJoined<String, String, String> how = StreamJoined.with(TEXT, TEXT, TEXT);
        how = op.has("store") ? how.withStoreName(text("store")) : how;
        return switch (text("how")) {
            case "inner" -> stream("of").join(stream("with"), OfStreamJoins::both, within, how);
            case "left" -> stream("of").leftJoin(stream("with"), OfStreamJoins::both, within, how);
            default -> stream("of").outerJoin(stream("with"), OfStreamJoins::both, within, how);
        };
    }

    private Object joinedGlobal() {
        GlobalKTable<String, String> everywhere = (GlobalKTable<String, String>) of("with");
        KeyValueMapper<String, String, String> on = KEYS.get(text("f"));
        return text("how").equals("inner")
            ? stream("of").join(everywhere, on, OfStreamJoins::both)
            : stream("of").leftJoin(everywhere, on, OfStreamJoins::both);
    }

    private Object joinedTables() {
        KTable<String, String> left = table("of");
        KTable<String, String> right = table("with");
        return switch (text("how")) {
            case "inner" -> isKept()
                ? left.join(right, OfStreamJoins::both, rows()) : left.join(right, OfStreamJoins::both);
            case "left" -> isKept()
                ? left.leftJoin(right, OfStreamJoins::both, rows()) : left.leftJoin(right, OfStreamJoins::both);
            default -> isKept()
                ? left.outerJoin(right, OfStreamJoins::both, rows()) : left.outerJoin(right, OfStreamJoins::both);
        };
    }

    private Object joinedForeign() {
        KTable<String, String> left = table("of");
        KTable<String, String> right = table("with");
        boolean inner = text("how").equals("inner");
        if (isKept()) {
            return inner
                ? left.join(right, Plans::letter, OfStreamJoins::both, rows())
                : left.leftJoin(right, Plans::letter, OfStreamJoins::both, rows());
        }
        return inner
            ? left.join(right, Plans::letter, OfStreamJoins::both)
            : left.leftJoin(right, Plans::letter, OfStreamJoins::both);
    }

    private Object to() {
        stream("of").to(text("topic"), Produced.with(TEXT, TEXT));
        return null;
    }
}
