import java.time.Duration;
import java.time.Instant;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Stores beside the key-value ones, written and read by processors. */
final class OfStores {
    private static final Duration SIZE = Duration.ofMillis(10);
    private static final Duration RETENTION = Duration.ofMinutes(2);

    private OfStores() {}

    static void add() {
        Topologies.dsl("window_store",
            b -> windows(b, Stores.persistentWindowStore("windows", RETENTION, SIZE, false)));
        Topologies.dsl("window_store_duplicates",
            b -> windows(b, Stores.persistentWindowStore("windows", RETENTION, SIZE, true)));
        Topologies.dsl("window_store_in_memory",
            b -> windows(b, Stores.inMemoryWindowStore("windows", RETENTION, SIZE, false)));
        Topologies.dsl("window_store_timestamped", OfStores::timestampedWindows);
        Topologies.dsl("session_store",
            b -> sessions(b, Stores.persistentSessionStore("sessions", RETENTION)));
        Topologies.dsl("session_store_in_memory",
            b -> sessions(b, Stores.inMemorySessionStore("sessions", RETENTION)));
        Topologies.dsl("session_store_by_end", OfStores::sessionsByEnd);
        Topologies.dsl("versioned_store",
            b -> versions(b, Stores.persistentVersionedKeyValueStore("versions", RETENTION)));
        Topologies.dsl("versioned_store_short", b -> versions(b, Stores.persistentVersionedKeyValueStore(
            "versions", Duration.ofMillis(30), Duration.ofMillis(10))));
        Topologies.dsl("lru_store", OfStores::lru);
        Topologies.dsl("lru_store_calls", OfStores::lruCalls);
        Topologies.dsl("global_store", OfStores::globalStore);
        Topologies.api("read_only_store", () -> lookedUp(readOnly(new Topology().addSource("source", "in"))));
        Topologies.api("read_only_store_by_default",
            () -> lookedUp(readOnly(new Topology()).addSource("source", "in")));
        Topologies.api("read_only_store_timestamped", OfStores::readOnlyTimes);
    }

    abstract static class Keyed extends OfProcessors.Texts {
        @Override
        public void process(Record<String, String> record) {
            if (record.key() != null) {
                handle(record, record.key(), record.value(), record.timestamp());
            }
        }

        abstract void handle(Record<String, String> record, String key, String value, long time);

        void say(Record<String, String> record, String text) {
            context().forward(record.withValue(text));
        }
    }

    static <V> String told(WindowStoreIterator<V> entries) {
        StringBuilder text = new StringBuilder();
        try (entries) {
            entries.forEachRemaining(each -> text.append(each.key).append('=').append(each.value).append(' '));
        }
        return text.toString();
    }

    static <V> String toldWindows(KeyValueIterator<Windowed<String>, V> entries) {
        StringBuilder text = new StringBuilder();
        try (entries) {
            entries.forEachRemaining(each -> text.append(OfWindows.text(each.key, null)).append('=').append(each.value)
                .append(' '));
        }
        return text.toString();
    }

    private static void windows(StreamsBuilder builder, WindowBytesStoreSupplier supplier) {
        OfProcessors.stored(builder, Stores.windowStoreBuilder(supplier, Topologies.TEXT, Topologies.TEXT))
            .process(() -> new Keyed() {
                @Override
                void handle(Record<String, String> record, String key, String value, long time) {
                    WindowStore<String, String> store = context().getStateStore("windows");
                    store.put(key, value, time - time % 10);
                    say(record, "fetch " + store.fetch(key, time - time % 10));
                    say(record, "key " + told(store.fetch(key, at(time - 50), at(time + 50))));
                    say(record, "backward " + told(store.backwardFetch(key, at(0), at(time))));
                    say(record, "keys " + toldWindows(store.fetch("a", "b", at(0), at(time))));
                    say(record, "all " + toldWindows(store.all()));
                    say(record, "backward all " + toldWindows(store.backwardFetchAll(at(time - 50), at(time))));
                }
            }, "windows").to("out");
    }

    private static Instant at(long time) {
        return Instant.ofEpochMilli(Math.max(0, time));
    }

    private static void timestampedWindows(StreamsBuilder builder) {
        OfProcessors.stored(builder, Stores.timestampedWindowStoreBuilder(
            Stores.persistentTimestampedWindowStore("windows", RETENTION, SIZE, false), Topologies.TEXT, Topologies.TEXT
        )).process(() -> new Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                TimestampedWindowStore<String, String> store = context().getStateStore("windows");
                ValueAndTimestamp<String> old = store.fetch(key, time - time % 10);
                say(record, old == null ? "none" : old.value() + " at " + old.timestamp());
                store.put(key, ValueAndTimestamp.make(value, time + 1), time - time % 10);
            }
        }, "windows").to("out");
    }

    private static void sessions(StreamsBuilder builder, SessionBytesStoreSupplier supplier) {
        OfProcessors.stored(
            builder, Stores.sessionStoreBuilder(supplier, Topologies.TEXT, Topologies.TEXT)
        ).process(() -> new Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                SessionStore<String, String> store = context().getStateStore("sessions");
                say(record, "found " + toldWindows(store.findSessions(key, time - 10, time + 10)));
                store.put(new Windowed<>(key, new SessionWindow(time, time + 3)), value);
                say(record, "one " + store.fetchSession(key, time, time + 3));
                say(record, "key " + toldWindows(store.fetch(key)));
                say(record, "keys " + toldWindows(store.backwardFetch("a", "b")));
                if ("del".equals(value)) {
                    store.remove(new Windowed<>(key, new SessionWindow(time, time + 3)));
                }
            }
        }, "sessions").to("out");
    }

    /** Only stores in memory, and those ordered by time, can be asked for all keys. */
    private static void sessionsByEnd(StreamsBuilder builder) {
        OfProcessors.stored(builder, Stores.sessionStoreBuilder(
            Stores.inMemorySessionStore("sessions", RETENTION), Topologies.TEXT, Topologies.TEXT
        )).process(() -> new Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                SessionStore<String, String> store = context().getStateStore("sessions");
                store.put(new Windowed<>(key, new SessionWindow(time, time + 3)), value);
                say(record, "ends " + toldWindows(store.findSessions(Math.max(0, time - 10), time + 10)));
                say(record, "back " + toldWindows(store.backwardFindSessions("a", "b", time - 10, time + 10)));
            }
        }, "sessions").to("out");
    }

    private static void versions(StreamsBuilder builder, VersionedBytesStoreSupplier supplier) {
        OfProcessors.stored(
            builder, Stores.versionedKeyValueStoreBuilder(supplier, Topologies.TEXT, Topologies.TEXT)
        ).process(() -> new Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                VersionedKeyValueStore<String, String> store = context().getStateStore("versions");
                say(record, "until " + ("del".equals(value)
                    ? told(store.delete(key, time)) : store.put(key, value, time)));
                say(record, "latest " + told(store.get(key)));
                say(record, "before " + told(store.get(key, Math.max(0, time - 5))));
                say(record, "after " + told(store.get(key, time + 5)));
            }
        }, "versions").to("out");
    }

    static String told(VersionedRecord<String> version) {
        return version == null
            ? "none" : version.value() + " at " + version.timestamp() + " to " + version.validTo().orElse(-1L);
    }

    private static void lru(StreamsBuilder builder) {
        OfProcessors.stored(builder, Stores.keyValueStoreBuilder(
            Stores.lruMap("latest", 2), Topologies.TEXT, Topologies.TEXT
        )).process(() -> new Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                KeyValueStore<String, String> store = context().getStateStore("latest");
                say(record, "old " + store.get(key) + " a " + store.get("a"));
                store.put(key, value);
            }
        }, "latest").to("out");
    }

    private static void lruCalls(StreamsBuilder builder) {
        OfProcessors.stored(builder, Stores.keyValueStoreBuilder(
            Stores.lruMap("latest", 3), Topologies.TEXT, Topologies.TEXT
        )).process(() -> new Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                KeyValueStore<String, String> store = context().getStateStore("latest");
                if ("del".equals(value)) {
                    say(record, "deleted " + store.delete(key));
                } else if (value != null && value.startsWith("a")) {
                    say(record, "absent " + store.putIfAbsent(key, value));
                } else {
                    store.put(key, value);
                }
                say(record, "all " + OfProcessors.told(store.all()));
                say(record, "backward " + OfProcessors.told(store.reverseRange("a", "b")));
                say(record, "count " + store.approximateNumEntries());
            }
        }, "latest").to("out");
    }

    private static void globalStore(StreamsBuilder builder) {
        builder.addGlobalStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("everywhere"), Topologies.TEXT, Topologies.TEXT)
                .withLoggingDisabled(),
            "global", Consumed.with(Topologies.TEXT, Topologies.TEXT),
            () -> new ContextualProcessor<String, String, Void, Void>() {
                @Override
                public void process(Record<String, String> record) {
                    KeyValueStore<String, String> store = context().getStateStore("everywhere");
                    if (record.key() != null) {
                        store.put(record.key(), record.value());
                    }
                }
            });
        OfStreams.in(builder).process(() -> new Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                KeyValueStore<String, String> store = context().getStateStore("everywhere");
                say(record, store.get(key) + " of " + OfProcessors.told(store.all()));
            }
        }).to("out");
    }

    private static Topology readOnly(Topology topology) {
        return topology.addReadOnlyStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("rows"), Topologies.TEXT, Topologies.TEXT),
            "rows-source", new StringDeserializer(), new StringDeserializer(), "rows", "mirror",
            () -> new ContextualProcessor<String, String, Void, Void>() {
                @Override
                public void process(Record<String, String> record) {
                    KeyValueStore<String, String> store = context().getStateStore("rows");
                    if (record.key() != null) {
                        store.put(record.key(), record.value());
                    }
                }
            });
    }

    private static Topology lookedUp(Topology topology) {
        return topology.addProcessor("looks-up", () -> new Keyed() {
            @Override
            void handle(Record<String, String> record, String key, String value, long time) {
                KeyValueStore<String, String> store = context().getStateStore("rows");
                say(record, store.get(key) + " of " + OfProcessors.told(store.all()));
            }
        }, "source").connectProcessorAndStateStores("looks-up", "rows").addSink("out", "out", "looks-up");
    }

    private static Topology readOnlyTimes() {
        return new Topology().addReadOnlyStateStore(
            Stores.timestampedKeyValueStoreBuilder(
                Stores.persistentTimestampedKeyValueStore("rows"), Topologies.TEXT, Topologies.TEXT),
            "rows-source", new StringDeserializer(), new StringDeserializer(), "rows", "mirror",
            () -> new ContextualProcessor<String, String, Void, Void>() {
                @Override
                public void process(Record<String, String> record) {
                    TimestampedKeyValueStore<String, String> store = context().getStateStore("rows");
                    if (record.key() != null) {
                        store.put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp()));
                    }
                }
            })
            .addSource("source", "in")
            .addProcessor("looks-up", () -> new Keyed() {
                @Override
                void handle(Record<String, String> record, String key, String value, long time) {
                    TimestampedKeyValueStore<String, String> store = context().getStateStore("rows");
                    ValueAndTimestamp<String> row = store.get(key);
                    say(record, row == null ? "none" : row.value() + " at " + row.timestamp());
                }
            }, "source").connectProcessorAndStateStores("looks-up", "rows").addSink("out", "out", "looks-up");
    }
}
