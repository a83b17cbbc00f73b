"""Global stores beside the key-value ones, as src/OfGlobalStores.java has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.java.of_joins import SIDES
from compat_tests.java.of_processors import told
from compat_tests.java.of_stores import RETENTION_MS, SIZE, told_version, told_windows
from compat_tests.java.of_streams import TEXT, text
from compat_tests.java.registry import Registry
from milestones.common.records import Record
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.topology import Processor, StreamsBuilder
from milestones.common.windowed import Windowed

ENTRIES = Registry()

Write = Callable[[Any, str, "str | None", int], object]
"""What a record of the store's topic does: (store, key, value, time)."""
Read = Callable[[Any, str, int], str]
"""What a record of the stream finds: (store, key, time)."""


def enter(name: str, kind: StoreKind, write: Write, read: Read, **options: Any) -> None:
    class Writes(Processor):
        def process(self, record: Record) -> None:
            if record.key is not None:
                write(self.context.get_state_store("everywhere"), record.key, record.value, record.timestamp)

    class Reads(Processor):
        def process(self, record: Record) -> None:
            if record.key is not None:
                rows = self.context.get_state_store("everywhere")
                self.context.forward(record.with_value(read(rows, record.key, record.timestamp)))

    spec = StoreSpec("everywhere", kind, key_serde=TEXT, value_serde=TEXT, **options)

    @ENTRIES.dsl(name, *SIDES)
    def program(builder: StreamsBuilder) -> None:
        builder.add_global_store(spec, "right", Writes, key=TEXT, value=TEXT)
        builder.stream("left").process(Reads).to("out")


def put_window(store: Any, key: str, value: str | None, time: int) -> None:
    store.put(key, value, time - time % 10)


def read_windows(store: Any, key: str, time: int) -> str:
    return (
        f"{text(store.fetch(key, time - time % 10))}"
        f" key {told(store.fetch(key, max(0, time - 50), time + 50))}"
        f" keys {told_windows(store.backward_fetch_range('a', 'b', 0, time))}"
        f" all {told_windows(store.all())}"
    )


def put_timed_window(store: Any, key: str, value: str | None, time: int) -> None:
    store.put(key, None if value is None else ValueAndTimestamp(value, time + 1), time - time % 10)


def read_timed_window(store: Any, key: str, time: int) -> str:
    row = store.fetch(key, time - time % 10)
    return "none" if row is None else f"{row.value} at {row.timestamp}"


def put_session(store: Any, key: str, value: str | None, time: int) -> None:
    store.put(Windowed(key, time, time + 3), value)


def read_sessions(store: Any, key: str, time: int) -> str:
    return (
        f"found {told_windows(store.find_sessions(key, time - 10, time + 10))}"
        f" key {told_windows(store.fetch(key))}"
        f" keys {told_windows(store.backward_fetch_range('a', 'b'))}"
    )


def put_version(store: Any, key: str, value: str | None, time: int) -> None:
    if value == "del":
        store.delete(key, time)
    else:
        store.put(key, value, time)


def read_versions(store: Any, key: str, time: int) -> str:
    return f"latest {told_version(store.get(key))} before {told_version(store.get(key, max(0, time - 5)))}"


def use_and_put(store: Any, key: str, value: str | None, time: int) -> None:
    store.get("a")
    store.put(key, value)


WINDOWS = {"retention_ms": RETENTION_MS, "window_ms": SIZE}
enter("global_store_window", "window", put_window, read_windows, **WINDOWS)
enter("global_store_window_in_memory", "window", put_window, read_windows, persistent=False, **WINDOWS)
enter("global_store_window_timestamped", "timestamped-window", put_timed_window, read_timed_window, **WINDOWS)
enter("global_store_session", "session", put_session, read_sessions, retention_ms=RETENTION_MS)
enter("global_store_versioned", "versioned", put_version, read_versions, retention_ms=RETENTION_MS)
enter("global_store_lru", "lru", use_and_put, lambda store, *_: told(store.all()), max_entries=2, persistent=False)
