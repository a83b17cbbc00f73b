"""Window and session stores that processors write and read, as src/OfStores.java has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compat_tests.java.of_processors import store, stored, told
from compat_tests.java.of_streams import text
from compat_tests.java.of_windows import text as window_text
from compat_tests.java.registry import Registry
from milestones.common.records import Record
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.topology import Processor, StreamsBuilder, Topology
from milestones.common.windowed import Windowed

ENTRIES = Registry()
RETENTION_MS, SIZE = 120_000, 10


def told_windows(entries: Iterable[tuple[Windowed[str], Any]]) -> str:
    return told((window_text(key, value), value) for key, value in entries)


class Keyed(Processor):
    """Handles each record with a key."""

    def process(self, record: Record) -> None:
        if record.key is not None:
            self.handle(record, record.key, record.value, record.timestamp)

    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        raise NotImplementedError

    def say(self, record: Record, said: str) -> None:
        self.context.forward(record.with_value(said))


class Windows(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        windows, start = self.context.get_state_store("windows"), time - time % 10
        windows.put(key, value, start)
        early = max(0, time - 50)
        self.say(record, "fetch " + text(windows.fetch(key, start)))
        self.say(record, "key " + told(windows.fetch(key, early, time + 50)))
        self.say(record, "backward " + told(windows.backward_fetch(key, 0, time)))
        self.say(record, "keys " + told_windows(windows.fetch_range("a", "b", 0, time)))
        self.say(record, "all " + told_windows(windows.all()))
        self.say(record, "backward all " + told_windows(windows.backward_fetch_all(early, time)))


@ENTRIES.dsl("window_store")
def window_store(builder: StreamsBuilder) -> None:
    spec = store("windows", kind="window", retention_ms=RETENTION_MS, window_ms=SIZE)
    stored(builder, spec).process(Windows, "windows").to("out")


@ENTRIES.dsl("window_store_duplicates")
def window_store_duplicates(builder: StreamsBuilder) -> None:
    spec = store("windows", kind="window", retention_ms=RETENTION_MS, window_ms=SIZE, duplicates=True)
    stored(builder, spec).process(Windows, "windows").to("out")


@ENTRIES.dsl("window_store_in_memory")
def window_store_in_memory(builder: StreamsBuilder) -> None:
    spec = store("windows", kind="window", retention_ms=RETENTION_MS, window_ms=SIZE, persistent=False)
    stored(builder, spec).process(Windows, "windows").to("out")


class WindowsWithTime(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        windows, start = self.context.get_state_store("windows"), time - time % 10
        old = windows.fetch(key, start)
        self.say(record, "none" if old is None else f"{old.value} at {old.timestamp}")
        # Java's `make` is null for a value of null.
        windows.put(key, None if value is None else ValueAndTimestamp(value, time + 1), start)


@ENTRIES.dsl("window_store_timestamped")
def window_store_timestamped(builder: StreamsBuilder) -> None:
    spec = store("windows", kind="timestamped-window", retention_ms=RETENTION_MS, window_ms=SIZE)
    stored(builder, spec).process(WindowsWithTime, "windows").to("out")


class Sessions(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        sessions, session = self.context.get_state_store("sessions"), Windowed(key, time, time + 3)
        self.say(record, "found " + told_windows(sessions.find_sessions(key, time - 10, time + 10)))
        sessions.put(session, value)
        self.say(record, "one " + text(sessions.fetch_session(key, time, time + 3)))
        self.say(record, "key " + told_windows(sessions.fetch(key)))
        self.say(record, "keys " + told_windows(sessions.backward_fetch_range("a", "b")))
        if value == "del":
            sessions.remove(session)


@ENTRIES.dsl("session_store")
def session_store(builder: StreamsBuilder) -> None:
    spec = store("sessions", kind="session", retention_ms=RETENTION_MS)
    stored(builder, spec).process(Sessions, "sessions").to("out")


@ENTRIES.dsl("session_store_in_memory")
def session_store_in_memory(builder: StreamsBuilder) -> None:
    spec = store("sessions", kind="session", retention_ms=RETENTION_MS, persistent=False)
    stored(builder, spec).process(Sessions, "sessions").to("out")


class SessionsByEnd(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        sessions = self.context.get_state_store("sessions")
        sessions.put(Windowed(key, time, time + 3), value)
        self.say(record, "ends " + told_windows(sessions.find_sessions_by_end(max(0, time - 10), time + 10)))
        back = sessions.backward_find_sessions_of_range("a", "b", time - 10, time + 10)
        self.say(record, "back " + told_windows(back))


@ENTRIES.dsl("session_store_by_end")
def session_store_by_end(builder: StreamsBuilder) -> None:
    spec = store("sessions", kind="session", retention_ms=RETENTION_MS, persistent=False)
    stored(builder, spec).process(SessionsByEnd, "sessions").to("out")


class Versions(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        versions = self.context.get_state_store("versions")
        deleted = told_version(versions.delete(key, time)) if value == "del" else versions.put(key, value, time)
        self.say(record, f"until {deleted}")
        self.say(record, "latest " + told_version(versions.get(key)))
        self.say(record, "before " + told_version(versions.get(key, max(0, time - 5))))
        self.say(record, "after " + told_version(versions.get(key, time + 5)))


def told_version(found: ValueAndTimestamp | None) -> str:
    # Java has room for the end of a version, and says none.
    return "none" if found is None else f"{found.value} at {found.timestamp} to -1"


@ENTRIES.dsl("versioned_store")
def versioned_store(builder: StreamsBuilder) -> None:
    spec = store("versions", kind="versioned", retention_ms=RETENTION_MS)
    stored(builder, spec).process(Versions, "versions").to("out")


@ENTRIES.dsl("versioned_store_short")
def versioned_store_short(builder: StreamsBuilder) -> None:
    spec = store("versions", kind="versioned", retention_ms=30, segment_interval_ms=10, persistent=False)
    stored(builder, spec).process(Versions, "versions").to("out")


class Latest(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        latest = self.context.get_state_store("latest")
        self.say(record, f"old {text(latest.get(key))} a {text(latest.get('a'))}")
        latest.put(key, value)


@ENTRIES.dsl("lru_store")
def lru_store(builder: StreamsBuilder) -> None:
    stored(builder, store("latest", kind="lru", max_entries=2, persistent=False)).process(Latest, "latest").to("out")


class LatestCalls(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        latest = self.context.get_state_store("latest")
        if value == "del":
            self.say(record, "deleted " + text(latest.delete(key)))
        elif value is not None and value.startswith("a"):
            self.say(record, "absent " + text(latest.put_if_absent(key, value)))
        else:
            latest.put(key, value)
        self.say(record, "all " + told(latest.all()))
        self.say(record, "backward " + told(latest.reverse_range("a", "b")))
        self.say(record, f"count {latest.approximate_num_entries()}")


@ENTRIES.dsl("lru_store_calls")
def lru_store_calls(builder: StreamsBuilder) -> None:
    spec = store("latest", kind="lru", max_entries=3, persistent=False)
    stored(builder, spec).process(LatestCalls, "latest").to("out")


class Mirror(Keyed):
    """Keeps each record of its topic as it is."""

    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        self.context.get_state_store("rows").put(key, value)


class LooksUp(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        rows = self.context.get_state_store("rows")
        self.say(record, f"{text(rows.get(key))} of {told(rows.all())}")


class LooksUpTimes(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        row = self.context.get_state_store("rows").get(key)
        self.say(record, "none" if row is None else f"{row.value} at {row.timestamp}")


@ENTRIES.api("read_only_store", "in", "rows")
def read_only_store() -> Topology:
    topology = Topology().add_source("source", "in")
    topology.add_read_only_state_store(store("rows"), "rows", Mirror, source="rows-source", processor="mirror")
    topology.add_processor("looks-up", LooksUp, "source").connect_processor_and_state_stores("looks-up", "rows")
    return topology.add_sink("out", "out", "looks-up")


@ENTRIES.api("read_only_store_by_default", "in", "rows")
def read_only_store_by_default() -> Topology:
    topology = Topology().add_read_only_state_store(store("rows"), "rows", source="rows-source", processor="mirror")
    topology.add_source("source", "in")
    topology.add_processor("looks-up", LooksUp, "source").connect_processor_and_state_stores("looks-up", "rows")
    return topology.add_sink("out", "out", "looks-up")


@ENTRIES.api("read_only_store_timestamped", "in", "rows")
def read_only_store_timestamped() -> Topology:
    spec = store("rows", kind="timestamped-key-value")
    topology = Topology().add_read_only_state_store(spec, "rows", source="rows-source", processor="mirror")
    topology.add_source("source", "in")
    topology.add_processor("looks-up", LooksUpTimes, "source").connect_processor_and_state_stores("looks-up", "rows")
    return topology.add_sink("out", "out", "looks-up")
