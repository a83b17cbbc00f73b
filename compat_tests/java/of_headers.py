"""Stores with headers (KIP-1271), as src/OfHeaders.java has them: those of the DSL under `dsl_store_format="headers"`,
and those that processors write headers into."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from compat_tests.java import (
    of_cogroup,
    of_foreign_keys,
    of_globals,
    of_joins,
    of_optimization,
    of_processors,
    of_suppress,
    of_tables,
    of_versioned,
    of_windows,
)
from compat_tests.java.of_processors import store, stored
from compat_tests.java.of_stores import RETENTION_MS, SIZE, Keyed
from compat_tests.java.of_streams import ENTRIES as OF_STREAMS
from compat_tests.java.of_streams import TEXT, aggregate, append, initial, text
from compat_tests.java.of_windows import LONG_MS, SESSION, keyed, merge, texts
from compat_tests.java.of_windows import text as window_text
from compat_tests.java.registry import Registry
from milestones.common.records import Header, Record
from milestones.common.state.stores.stores_with_headers import AggregationWithHeaders, ValueTimestampHeaders
from milestones.common.topology import StreamsBuilder
from milestones.common.windowed import Windowed

ENTRIES = Registry()

MODULES: tuple[Any, ...] = (
    of_tables, of_windows, of_joins, of_cogroup, of_suppress, of_globals, of_versioned, of_foreign_keys,
    of_optimization, of_processors,
)  # fmt: skip

AGAIN = (
    "group_by_key_count", "group_by_key_reduce", "group_by_key_aggregate", "reduce_that_deletes", "table",
    "table_filter_materialized", "table_map_values_materialized", "table_group_by_aggregate",
    "table_transform_values_materialized", "windows_tumbling_count", "windows_tumbling_reduce",
    "windows_hopping_aggregate", "windows_sliding_aggregate", "windows_tumbling_on_close_aggregate",
    "windows_hopping_in_memory", "windows_session_on_close_aggregate", "cogroup", "cogroup_session", "suppress_session",
    "join_streams_left", "join_stream_table_left", "join_stream_global_left", "join_tables_materialized",
    "join_tables_regrouped", "foreign_key_materialized", "versioned_count", "optimized_tables",
    "process_timestamped_store",
)  # fmt: skip
"""Topologies that stand elsewhere."""

ENTRIES.again("headers_", AGAIN, chain(OF_STREAMS, *(module.ENTRIES for module in MODULES)))


def told(headers: Iterable[Header]) -> str:
    return ",".join(f"{name}:{'null' if value is None else value.hex()}" for name, value in headers)


def told_row(row: ValueTimestampHeaders | None) -> str:
    return "none" if row is None else f"{row.value} at {row.timestamp} [{told(row.headers)}]"


def told_aggregate(found: AggregationWithHeaders | None) -> str:
    return "none" if found is None else f"{found.aggregation} [{told(found.headers)}]"


class Rows(Keyed):
    """Keeps each record with its headers and one more; a value chooses the call."""

    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        rows = self.context.get_state_store("rows")
        self.say(record, told_row(rows.get(key)))
        row = None if value is None else ValueTimestampHeaders(value, time + 3, [*record.headers, ("n", b"\x01")])
        if value == "del":
            self.say(record, "deleted " + told_row(rows.delete(key)))
        elif value is not None and value.startswith("a"):
            self.say(record, "present " + told_row(rows.put_if_absent(key, row)))
        elif value is not None and value.startswith("b"):
            rows.put_all([(key, row), (key + "'", ValueTimestampHeaders(value, time, []))])
        else:
            rows.put(key, row)
        for found in self.scans(rows):
            self.say(record, "".join(f"{each}={told_row(row)} " for each, row in found))

    def scans(self, rows: Any) -> Iterable[Any]:
        return rows.reverse_range("a", None), rows.all()


class CachedRows(Rows):
    """Kafka Streams fails in a scan backwards past a row that was deleted in the cache."""

    def scans(self, rows: Any) -> Iterable[Any]:
        return (rows.all(),)


@ENTRIES.dsl("headers_store")
def headers_store(builder: StreamsBuilder) -> None:
    stored(builder, store("rows", kind="timestamped-key-value-with-headers")).process(Rows, "rows").to("out")


@ENTRIES.dsl("headers_store_in_memory")
def headers_store_in_memory(builder: StreamsBuilder) -> None:
    spec = store("rows", kind="timestamped-key-value-with-headers", persistent=False)
    stored(builder, spec).process(Rows, "rows").to("out")


@ENTRIES.dsl("headers_store_cached")
def headers_store_cached(builder: StreamsBuilder) -> None:
    spec = store("rows", kind="timestamped-key-value-with-headers", cached=True)
    stored(builder, spec).process(CachedRows, "rows").to("out")


class Windows(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        windows, start = self.context.get_state_store("windows"), time - time % 10
        row = None if value is None else ValueTimestampHeaders(value, time + 1, record.headers)
        windows.put(key, row, start)
        early = max(0, time - 50)
        self.say(record, "fetch " + told_row(windows.fetch(key, start)))
        for entries in (windows.fetch(key, early, time + 50), windows.backward_fetch(key, 0, time)):
            self.say(record, "key " + "".join(f"{each}={told_row(row)} " for each, row in entries))
        for found in (windows.fetch_range("a", "b", 0, time), windows.all(), windows.backward_fetch_all(early, time)):
            self.say(record, "keys " + "".join(f"{window_text(each, None)}={told_row(row)} " for each, row in found))


@ENTRIES.dsl("headers_window_store")
def headers_window_store(builder: StreamsBuilder) -> None:
    spec = store("windows", kind="timestamped-window-with-headers", retention_ms=RETENTION_MS, window_ms=SIZE)
    stored(builder, spec).process(Windows, "windows").to("out")


class Sessions(Keyed):
    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        sessions, session = self.context.get_state_store("sessions"), Windowed(key, time, time + 3)
        sessions.put(session, None if value is None else AggregationWithHeaders(value, record.headers))
        self.say(record, "one " + told_aggregate(sessions.fetch_session(key, time, time + 3)))
        near = sessions.find_sessions(key, time - 10, time + 10)
        for found in (near, sessions.fetch(key), sessions.backward_fetch_range("a", "b")):
            told = "".join(f"{window_text(each, None)}={told_aggregate(row)} " for each, row in found)
            self.say(record, "found " + told)
        if value == "del":
            sessions.remove(session)


@ENTRIES.dsl("headers_session_store")
def headers_session_store(builder: StreamsBuilder) -> None:
    spec = store("sessions", kind="session-with-headers", retention_ms=RETENTION_MS)
    stored(builder, spec).process(Sessions, "sessions").to("out")


@ENTRIES.dsl("headers_sessions")
def headers_sessions(builder: StreamsBuilder) -> None:
    sessions = keyed(builder).windowed_by(SESSION)
    texts(sessions.aggregate(initial, aggregate, merge, "sessions", key=TEXT, value=TEXT, retention=LONG_MS))


class Changes(Keyed):
    """Changes a table's row, and tells of it."""

    def handle(self, record: Record, key: str, value: str | None, time: int) -> None:
        counts = self.context.get_state_store("rows")
        row = counts.get(key)
        self.say(record, told_row(row))
        if value == "x":
            counts.put(key, None if row is None else row._replace(headers=record.headers))


@ENTRIES.dsl("headers_rows_changed_by_a_processor", "in", "rows")
def rows_changed_by_a_processor(builder: StreamsBuilder) -> None:
    grouped = builder.stream("rows").group_by_key()
    grouped.aggregate(lambda: "", lambda key, value, so_far: append(so_far, text(value)), "rows", key=TEXT, value=TEXT)
    builder.stream("in").process(Changes, "rows").to("out")
