import java.time.Duration;
import java.time.Instant;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Windowed aggregations. Windows are 10 ms wide, hop by 4, and close 5 ms after their end. */
final class OfWindows {
    static final Duration SIZE = Duration.ofMillis(10);
    static final Duration GRACE = Duration.ofMillis(5);
    static final Duration LONG = Duration.ofMillis(1_000_000_000_000L);
    static final TimeWindows TUMBLING = TimeWindows.ofSizeAndGrace(SIZE, GRACE);
    static final TimeWindows HOPPING = TUMBLING.advanceBy(Duration.ofMillis(4));
    static final SlidingWindows SLIDING = SlidingWindows.ofTimeDifferenceAndGrace(SIZE, GRACE);
    static final SessionWindows SESSION = SessionWindows.ofInactivityGapAndGrace(SIZE, GRACE);

    private OfWindows() {}

    static void add() {
        times("tumbling", grouped -> grouped.windowedBy(TUMBLING));
        times("hopping", grouped -> grouped.windowedBy(HOPPING));
        times("sliding", grouped -> grouped.windowedBy(SLIDING));
        times("unlimited", grouped -> grouped.windowedBy(UnlimitedWindows.of()));
        times("tumbling_no_grace", grouped -> grouped.windowedBy(TimeWindows.ofSizeWithNoGrace(SIZE)));
        closing("tumbling", grouped -> grouped.windowedBy(TUMBLING).emitStrategy(EmitStrategy.onWindowClose()));
        closing("hopping", grouped -> grouped.windowedBy(HOPPING).emitStrategy(EmitStrategy.onWindowClose()));
        closing("sliding", grouped -> grouped.windowedBy(SLIDING).emitStrategy(EmitStrategy.onWindowClose()));
        sessions("session", grouped -> grouped.windowedBy(SESSION));
        closingSessions(grouped -> grouped.windowedBy(SESSION).emitStrategy(EmitStrategy.onWindowClose()));
        Topologies.dsl("windows_unlimited_from_20", b -> texts(keyed(b)
            .windowedBy(UnlimitedWindows.of().startOn(Instant.ofEpochMilli(20))).count()));
        Topologies.dsl("windows_tumbling_windowed_keys", OfWindows::windowedKeys);
        Topologies.dsl("windows_session_windowed_keys", OfWindows::sessionKeys);
        Topologies.dsl("windows_tumbling_options", OfWindows::options);
        Topologies.dsl("windows_hopping_in_memory", OfWindows::inMemory);
        Topologies.dsl("windows_tumbling_rekeyed", OfWindows::rekeyed);
        Topologies.dsl("windows_tumbling_regrouped", OfWindows::regrouped);
        Topologies.dsl("windows_tumbling_filtered", OfWindows::filtered);
    }

    /** `windows_KIND_count`, `_reduce` and `_aggregate`. */
    private static void times(String kind, Function<
        KGroupedStream<String, String>, TimeWindowedKStream<String, String>> windowed) {
        Topologies.dsl("windows_" + kind + "_count", b -> texts(windowed.apply(keyed(b)).count()));
        Topologies.dsl("windows_" + kind + "_reduce", b -> texts(windowed.apply(keyed(b)).reduce(OfStreams::append)));
        Topologies.dsl("windows_" + kind + "_aggregate",
            b -> texts(windowed.apply(keyed(b)).aggregate(OfStreams::initial, OfStreams::aggregate)));
    }

    private static void sessions(String kind, Function<
        KGroupedStream<String, String>, SessionWindowedKStream<String, String>> windowed) {
        Topologies.dsl("windows_" + kind + "_count", b -> texts(windowed.apply(keyed(b)).count()));
        Topologies.dsl("windows_" + kind + "_reduce", b -> texts(windowed.apply(keyed(b)).reduce(OfStreams::append)));
        Topologies.dsl("windows_" + kind + "_aggregate", b -> texts(
            windowed.apply(keyed(b)).aggregate(OfStreams::initial, OfStreams::aggregate, OfWindows::merge)));
    }

    /** `windows_KIND_on_close_count`, `_reduce` and `_aggregate`, with a retention beyond all inputs. */
    private static void closing(String kind, Function<
        KGroupedStream<String, String>, TimeWindowedKStream<String, String>> windowed) {
        String name = "windows_" + kind + "_on_close_";
        Topologies.dsl(name + "count", b -> texts(windowed.apply(keyed(b)).count(
            Materialized.<String, Long, WindowStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.LONG)
                .withRetention(LONG))));
        Topologies.dsl(name + "reduce", b -> texts(windowed.apply(keyed(b)).reduce(OfStreams::append,
            Materialized.<String, String, WindowStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.TEXT)
                .withRetention(LONG))));
        Topologies.dsl(name + "aggregate",
            b -> texts(windowed.apply(keyed(b)).aggregate(OfStreams::initial, OfStreams::aggregate,
                Materialized.<String, String, WindowStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.TEXT)
                    .withRetention(LONG))));
    }

    private static void closingSessions(Function<
        KGroupedStream<String, String>, SessionWindowedKStream<String, String>> windowed) {
        String name = "windows_session_on_close_";
        Topologies.dsl(name + "count", b -> texts(windowed.apply(keyed(b)).count(
            Materialized.<String, Long, SessionStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.LONG)
                .withRetention(LONG))));
        Topologies.dsl(name + "reduce", b -> texts(windowed.apply(keyed(b)).reduce(OfStreams::append,
            Materialized.<String, String, SessionStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.TEXT)
                .withRetention(LONG))));
        Topologies.dsl(name + "aggregate",
            b -> texts(windowed.apply(keyed(b)).aggregate(OfStreams::initial, OfStreams::aggregate, OfWindows::merge,
                Materialized.<String, String, SessionStore<Bytes, byte[]>>with(Topologies.TEXT, Topologies.TEXT)
                    .withRetention(LONG))));
    }

    private static KGroupedStream<String, String> keyed(StreamsBuilder builder) {
        return OfStreams.in(builder).groupByKey();
    }

    static String merge(String key, String one, String two) {
        return OfStreams.append(one, two);
    }

    /** `key@start/end`; also a mapper of a table's updates. */
    static String text(Windowed<String> key, Object value) {
        return key.key() + "@" + key.window().start() + "/" + key.window().end();
    }

    /** Updates with keys as text and values as text. */
    static <V> void texts(KTable<Windowed<String>, V> table) {
        table.toStream(OfWindows::text).mapValues(v -> v == null ? null : v.toString())
            .to("out", Produced.with(Topologies.TEXT, Topologies.TEXT));
    }

    private static void windowedKeys(StreamsBuilder builder) {
        Serde<Windowed<String>> keys = WindowedSerdes.timeWindowedSerdeFrom(String.class, SIZE.toMillis());
        keyed(builder).windowedBy(TUMBLING).count().toStream().to("out", Produced.with(keys, Topologies.LONG));
    }

    private static void sessionKeys(StreamsBuilder builder) {
        keyed(builder).windowedBy(SESSION).count().toStream()
            .to("out", Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), Topologies.LONG));
    }

    private static void options(StreamsBuilder builder) {
        KGroupedStream<String, String> grouped = keyed(builder);
        texts(grouped.windowedBy(TUMBLING).count(Named.as("counting"),
            Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts").withRetention(Duration.ofMinutes(3))));
        texts(grouped.windowedBy(SESSION).count(Named.as("sessions"),
            Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions").withCachingDisabled()));
        texts(grouped.windowedBy(HOPPING).reduce(OfStreams::append,
            Materialized.<String, String, WindowStore<Bytes, byte[]>>as("unlogged").withLoggingDisabled()));
    }

    private static void inMemory(StreamsBuilder builder) {
        texts(keyed(builder).windowedBy(HOPPING).count(
            Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts")
                .withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY)));
        texts(keyed(builder).windowedBy(SESSION).count(
            Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions")
                .withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY)));
    }

    private static void rekeyed(StreamsBuilder builder) {
        texts(OfStreams.in(builder).groupBy((k, v) -> v, Grouped.as("by-value")).windowedBy(TUMBLING).count());
    }

    private static void regrouped(StreamsBuilder builder) {
        keyed(builder).windowedBy(TUMBLING).count()
            .groupBy((k, v) -> KeyValue.pair(k.key(), v), Grouped.with(Topologies.TEXT, Topologies.LONG))
            .reduce((a, v) -> a + v, (a, v) -> a - v).toStream().to("out", Topologies.longs());
    }

    private static void filtered(StreamsBuilder builder) {
        texts(keyed(builder).windowedBy(TUMBLING).count().filter((k, v) -> v % 2 == 0).mapValues(v -> "n" + v));
    }
}
