import java.time.Duration;
import java.time.Instant;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;

/** Global stores beside the key-value ones, as of_global_stores.py has them. */
final class OfGlobalStores {
    private static final Duration SIZE = Duration.ofMillis(10);
    private static final Duration RETENTION = Duration.ofMinutes(2);

    private OfGlobalStores() {}

    static void add() {
        Topologies.dsl("global_store_window",
            b -> windows(b, Stores.persistentWindowStore("everywhere", RETENTION, SIZE, false)));
        Topologies.dsl("global_store_window_in_memory",
            b -> windows(b, Stores.inMemoryWindowStore("everywhere", RETENTION, SIZE, false)));
        Topologies.dsl("global_store_window_timestamped", OfGlobalStores::timestampedWindows);
        Topologies.dsl("global_store_session", OfGlobalStores::sessions);
        Topologies.dsl("global_store_versioned", OfGlobalStores::versions);
        Topologies.dsl("global_store_lru", OfGlobalStores::latest);
    }

    /** What a record of the store's topic does to the store. */
    private interface Write<S> {
        void to(S store, String key, String value, long time);
    }

    /** What a record of the stream finds in the store. */
    private interface Read<S> {
        String of(S store, String key, long time);
    }

    private static <S> void kept(StreamsBuilder builder, StoreBuilder<?> store, Write<S> write, Read<S> read) {
        builder.addGlobalStore(store, "right", Consumed.with(Topologies.TEXT, Topologies.TEXT),
            () -> new ContextualProcessor<String, String, Void, Void>() {
                @Override
                public void process(Record<String, String> record) {
                    S rows = (S) context().getStateStore("everywhere");
                    if (record.key() != null) {
                        write.to(rows, record.key(), record.value(), record.timestamp());
                    }
                }
            });
        builder.<String, String>stream("left").process(() -> new ContextualProcessor<String, String, String, String>() {
            @Override
            public void process(Record<String, String> record) {
                S rows = (S) context().getStateStore("everywhere");
                if (record.key() != null) {
                    context().forward(record.withValue(read.of(rows, record.key(), record.timestamp())));
                }
            }
        }).to("out");
    }

    private static Instant at(long time) {
        return Instant.ofEpochMilli(Math.max(0, time));
    }

    private static void windows(StreamsBuilder builder, WindowBytesStoreSupplier supplier) {
        OfGlobalStores.<WindowStore<String, String>>kept(builder,
            Stores.windowStoreBuilder(supplier, Topologies.TEXT, Topologies.TEXT),
            (store, key, value, time) -> store.put(key, value, time - time % 10),
            (store, key, time) -> store.fetch(key, time - time % 10)
                + " key " + OfStores.told(store.fetch(key, at(time - 50), at(time + 50)))
                + " keys " + OfStores.toldWindows(store.backwardFetch("a", "b", at(0), at(time)))
                + " all " + OfStores.toldWindows(store.all()));
    }

    private static void timestampedWindows(StreamsBuilder builder) {
        OfGlobalStores.<TimestampedWindowStore<String, String>>kept(builder,
            Stores.timestampedWindowStoreBuilder(
                Stores.persistentTimestampedWindowStore("everywhere", RETENTION, SIZE, false),
                Topologies.TEXT, Topologies.TEXT),
            (store, key, value, time) -> store.put(key, ValueAndTimestamp.make(value, time + 1), time - time % 10),
            (store, key, time) -> {
                ValueAndTimestamp<String> row = store.fetch(key, time - time % 10);
                return row == null ? "none" : row.value() + " at " + row.timestamp();
            });
    }

    private static void sessions(StreamsBuilder builder) {
        OfGlobalStores.<SessionStore<String, String>>kept(builder,
            Stores.sessionStoreBuilder(
                Stores.persistentSessionStore("everywhere", RETENTION), Topologies.TEXT, Topologies.TEXT),
            (store, key, value, time) -> store.put(new Windowed<>(key, new SessionWindow(time, time + 3)), value),
            (store, key, time) -> "found " + OfStores.toldWindows(store.findSessions(key, time - 10, time + 10))
                + " key " + OfStores.toldWindows(store.fetch(key))
                + " keys " + OfStores.toldWindows(store.backwardFetch("a", "b")));
    }

    private static void versions(StreamsBuilder builder) {
        OfGlobalStores.<VersionedKeyValueStore<String, String>>kept(builder,
            Stores.versionedKeyValueStoreBuilder(
                Stores.persistentVersionedKeyValueStore("everywhere", RETENTION), Topologies.TEXT, Topologies.TEXT),
            (store, key, value, time) -> {
                if ("del".equals(value)) {
                    store.delete(key, time);
                } else {
                    store.put(key, value, time);
                }
            },
            (store, key, time) -> "latest " + OfStores.told(store.get(key))
                + " before " + OfStores.told(store.get(key, Math.max(0, time - 5))));
    }

    private static void latest(StreamsBuilder builder) {
        OfGlobalStores.<KeyValueStore<String, String>>kept(builder,
            Stores.keyValueStoreBuilder(Stores.lruMap("everywhere", 2), Topologies.TEXT, Topologies.TEXT),
            (store, key, value, time) -> {
                store.get("a");
                store.put(key, value);
            },
            (store, key, time) -> OfProcessors.told(store.all()));
    }
}
