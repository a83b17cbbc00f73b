import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.SessionStoreWithHeaders;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedWindowStoreWithHeaders;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Stores with headers, as of_headers.py has them. */
final class OfHeaders {
    private static final Duration SIZE = Duration.ofMillis(10);
    private static final Duration RETENTION = Duration.ofMinutes(2);

    private static final List<String> AGAIN = List.of(
        "group_by_key_count", "group_by_key_reduce", "group_by_key_aggregate", "reduce_that_deletes", "table",
        "table_filter_materialized", "table_map_values_materialized", "table_group_by_aggregate",
        "table_transform_values_materialized", "windows_tumbling_count", "windows_tumbling_reduce",
        "windows_hopping_aggregate", "windows_sliding_aggregate", "windows_tumbling_on_close_aggregate",
        "windows_hopping_in_memory", "windows_session_on_close_aggregate", "cogroup", "cogroup_session", "suppress_session", "join_streams_left",
        "join_stream_table_left", "join_stream_global_left", "join_tables_materialized", "join_tables_regrouped",
        "foreign_key_materialized", "versioned_count", "optimized_tables", "process_timestamped_store"
    );

    private OfHeaders() {}

    static void add() {
        AGAIN.forEach(name -> Topologies.again("headers_" + name, name));
        Topologies.dsl("headers_store",
            b -> rows(b, keyed(Stores.persistentTimestampedKeyValueStoreWithHeaders("rows")), true));
        Topologies.dsl("headers_store_in_memory", b -> rows(b, keyed(Stores.inMemoryKeyValueStore("rows")), true));
        Topologies.dsl("headers_store_cached",
            b -> rows(b, keyed(Stores.persistentTimestampedKeyValueStoreWithHeaders("rows")).withCachingEnabled(), false));
        Topologies.dsl("headers_window_store", OfHeaders::windows);
        Topologies.dsl("headers_session_store", OfHeaders::sessions);
        Topologies.dsl("headers_sessions", OfHeaders::dslSessions);
        Topologies.dsl("headers_rows_changed_by_a_processor", OfHeaders::rowsChanged);
    }

    private static StoreBuilder<TimestampedKeyValueStoreWithHeaders<String, String>> keyed(
        KeyValueBytesStoreSupplier supplier
    ) {
        return Stores.timestampedKeyValueStoreWithHeadersBuilder(supplier, Topologies.TEXT, Topologies.TEXT);
    }

    private static String told(Headers headers) {
        StringBuilder text = new StringBuilder();
        for (Header each : headers) {
            String value = each.value() == null ? "null" : HexFormat.of().formatHex(each.value());
            text.append(text.isEmpty() ? "" : ",").append(each.key()).append(':').append(value);
        }
        return text.toString();
    }

    private static String told(ValueTimestampHeaders<String> row) {
        return row == null ? "none" : row.value() + " at " + row.timestamp() + " [" + told(row.headers()) + "]";
    }

    private static String told(AggregationWithHeaders<String> found) {
        return found == null ? "none" : found.aggregation() + " [" + told(found.headers()) + "]";
    }

    private static String told(KeyValueIterator<String, ValueTimestampHeaders<String>> rows) {
        StringBuilder text = new StringBuilder();
        try (rows) {
            rows.forEachRemaining(each -> text.append(each.key).append('=').append(told(each.value)).append(' '));
        }
        return text.toString();
    }

    /** `backwards`: which fails behind a cache, past a row that was deleted there. */
    private static void rows(StreamsBuilder builder, StoreBuilder<?> store, boolean backwards) {
        OfProcessors.stored(builder, store).process(() -> new OfStores.Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                TimestampedKeyValueStoreWithHeaders<String, String> rows = context().getStateStore("rows");
                say(record, told(rows.get(key)));
                ValueTimestampHeaders<String> row = ValueTimestampHeaders.make(
                    value, time + 3, new RecordHeaders(record.headers()).add("n", new byte[] {1}));
                if ("del".equals(value)) {
                    say(record, "deleted " + told(rows.delete(key)));
                } else if (value != null && value.startsWith("a")) {
                    say(record, "present " + told(rows.putIfAbsent(key, row)));
                } else if (value != null && value.startsWith("b")) {
                    rows.putAll(List.of(KeyValue.pair(key, row),
                        KeyValue.pair(key + "'", ValueTimestampHeaders.make(value, time, new RecordHeaders()))));
                } else {
                    rows.put(key, row);
                }
                if (backwards) {
                    say(record, told(rows.reverseRange("a", null)));
                }
                say(record, told(rows.all()));
            }
        }, "rows").to("out");
    }

    private static String toldTimes(WindowStoreIterator<ValueTimestampHeaders<String>> entries) {
        StringBuilder text = new StringBuilder();
        try (entries) {
            entries.forEachRemaining(each -> text.append(each.key).append('=').append(told(each.value)).append(' '));
        }
        return text.toString();
    }

    private static String toldWindows(KeyValueIterator<Windowed<String>, ValueTimestampHeaders<String>> entries) {
        StringBuilder text = new StringBuilder();
        try (entries) {
            entries.forEachRemaining(each -> text.append(OfWindows.text(each.key, null)).append('=')
                .append(told(each.value)).append(' '));
        }
        return text.toString();
    }

    private static Instant at(long time) {
        return Instant.ofEpochMilli(Math.max(0, time));
    }

    private static void windows(StreamsBuilder builder) {
        OfProcessors.stored(builder, Stores.timestampedWindowStoreWithHeadersBuilder(
            Stores.persistentTimestampedWindowStoreWithHeaders("windows", RETENTION, SIZE, false),
            Topologies.TEXT, Topologies.TEXT
        )).process(() -> new OfStores.Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                TimestampedWindowStoreWithHeaders<String, String> windows = context().getStateStore("windows");
                windows.put(key, ValueTimestampHeaders.make(value, time + 1, record.headers()), time - time % 10);
                say(record, "fetch " + told(windows.fetch(key, time - time % 10)));
                say(record, "key " + toldTimes(windows.fetch(key, at(time - 50), at(time + 50))));
                say(record, "key " + toldTimes(windows.backwardFetch(key, at(0), at(time))));
                say(record, "keys " + toldWindows(windows.fetch("a", "b", at(0), at(time))));
                say(record, "keys " + toldWindows(windows.all()));
                say(record, "keys " + toldWindows(windows.backwardFetchAll(at(time - 50), at(time))));
            }
        }, "windows").to("out");
    }

    private static String toldSessions(KeyValueIterator<Windowed<String>, AggregationWithHeaders<String>> entries) {
        StringBuilder text = new StringBuilder();
        try (entries) {
            entries.forEachRemaining(each -> text.append(OfWindows.text(each.key, null)).append('=')
                .append(told(each.value)).append(' '));
        }
        return text.toString();
    }

    private static void sessions(StreamsBuilder builder) {
        OfProcessors.stored(builder, Stores.sessionStoreWithHeadersBuilder(
            Stores.persistentSessionStoreWithHeaders("sessions", RETENTION), Topologies.TEXT, Topologies.TEXT
        )).process(() -> new OfStores.Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                SessionStoreWithHeaders<String, String> sessions = context().getStateStore("sessions");
                Windowed<String> session = new Windowed<>(key, new SessionWindow(time, time + 3));
                sessions.put(session, AggregationWithHeaders.make(value, record.headers()));
                say(record, "one " + told(sessions.fetchSession(key, time, time + 3)));
                say(record, "found " + toldSessions(sessions.findSessions(key, time - 10, time + 10)));
                say(record, "found " + toldSessions(sessions.fetch(key)));
                say(record, "found " + toldSessions(sessions.backwardFetch("a", "b")));
                if ("del".equals(value)) {
                    sessions.remove(session);
                }
            }
        }, "sessions").to("out");
    }

    private static void dslSessions(StreamsBuilder builder) {
        OfWindows.texts(OfStreams.in(builder).groupByKey()
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(OfWindows.SIZE, OfWindows.GRACE))
            .aggregate(OfStreams::initial, OfStreams::aggregate, OfWindows::merge,
                Materialized.<String, String, SessionStore<Bytes, byte[]>>as("sessions")
                    .withKeySerde(Topologies.TEXT).withValueSerde(Topologies.TEXT).withRetention(OfWindows.LONG)));
    }

    private static void rowsChanged(StreamsBuilder builder) {
        builder.<String, String>stream("rows").groupByKey().aggregate(() -> "",
            (key, value, soFar) -> OfStreams.append(soFar, value),
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("rows")
                .withKeySerde(Topologies.TEXT).withValueSerde(Topologies.TEXT));
        OfStreams.in(builder).process(() -> new OfStores.Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                TimestampedKeyValueStoreWithHeaders<String, String> rows = context().getStateStore("rows");
                ValueTimestampHeaders<String> row = rows.get(key);
                say(record, told(row));
                if ("x".equals(value)) {
                    rows.put(key, row == null ? null
                        : ValueTimestampHeaders.make(row.value(), row.timestamp(), record.headers()));
                }
            }
        }, "rows").to("out");
    }
}
