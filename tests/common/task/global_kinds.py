"""The kinds of global stores: what a processor does with a record, a model of what that leads to, and all that a task
sees of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from milestones import (
    AggregationWithHeaders,
    Headers,
    Record,
    StoreSpec,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
    stores,
)

SIZE, RETENTION, MAX_ENTRIES = 10, 100_000, 4
FOREVER = 1 << 62


class Said(NamedTuple):
    """A record of the topic that was processed."""

    key: str
    value: str | None
    timestamp: int


Write = Callable[[Any, Record], None]
Rows = dict[Any, Any]


@dataclass(frozen=True)
class Case:
    """One kind. `write`: what the processor does with a record; `model`: what it leads to; `read`: all that a task
    sees of it."""

    spec: StoreSpec
    write: Write
    model: Callable[[Sequence[Said]], Rows]
    read: Callable[[Any], Rows]

    @property
    def kind(self) -> str:
        return self.spec.kind


def start_of(timestamp: int) -> int:
    return timestamp // SIZE * SIZE


def bounded(row: Callable[[Said], tuple[int, Any, Any]]) -> Callable[[Sequence[Said]], Rows]:
    """The model of rows that are gone after `RETENTION`; `row`: their time, key and value."""

    def model(said: Sequence[Said]) -> Rows:
        rows: Rows = {}
        for each in said:
            time, key, value = row(each)
            rows[key] = (time, value)
        observed = max((row(each)[0] for each in said), default=-1)
        return {
            key: value for key, (time, value) in rows.items() if value is not None and time > observed - RETENTION
        }

    return model


# -- windows and sessions


def put_window(store: Any, record: Record) -> None:
    store.put(record.key, record.value, start_of(record.timestamp))


def window_row(said: Said) -> tuple[int, Any, Any]:
    start = start_of(said.timestamp)
    return start, Windowed(said.key, start, start + SIZE), said.value


def put_timed_window(store: Any, record: Record) -> None:
    start = start_of(record.timestamp)
    store.put(record.key, record.value and ValueAndTimestamp(record.value, record.timestamp), start)


def timed_window_row(said: Said) -> tuple[int, Any, Any]:
    start, window, value = window_row(said)
    return start, window, value and ValueAndTimestamp(value, said.timestamp)


def read_windows(store: Any) -> Rows:
    rows = dict(store.all())
    assert dict(store.backward_all()) == rows
    for key in {windowed.key for windowed in rows}:
        of_key = {windowed.start: value for windowed, value in rows.items() if windowed.key == key}
        assert dict(store.fetch(key, 0, FOREVER)) == of_key
        assert {start: store.fetch(key, start) for start in of_key} == of_key
    return rows


def session_of(key: str, timestamp: int) -> Windowed[str]:
    return Windowed(key, timestamp - timestamp % 7, timestamp)


def put_session(store: Any, record: Record) -> None:
    store.put(session_of(record.key, record.timestamp), record.value)


def session_row(said: Said) -> tuple[int, Any, Any]:
    return said.timestamp, session_of(said.key, said.timestamp), said.value


def read_sessions(store: Any) -> Rows:
    rows = dict(store.fetch_range(None, None))
    for key in {windowed.key for windowed in rows}:
        of_key = {windowed: value for windowed, value in rows.items() if windowed.key == key}
        assert dict(store.find_sessions(key, 0, FOREVER)) == of_key
        assert {session: store.fetch_session(*session) for session in of_key} == of_key
    return rows


# -- versions


def put_version(store: Any, record: Record) -> None:
    store.put(record.key, record.value, record.timestamp)


def versions(said: Sequence[Said]) -> Rows:
    """What each key was at each time at which any key changed, within the history."""
    observed, taken = -1, dict[str, dict[int, str | None]]()
    for key, value, timestamp in said:
        if timestamp >= observed - RETENTION:
            taken.setdefault(key, {})[timestamp] = value
            observed = max(observed, timestamp)
    rows: Rows = {}
    for key, values in taken.items():
        latest = max(values)
        if values[latest] is not None:
            rows[key] = ValueAndTimestamp(values[latest], latest)
        for at in sorted(values):
            if at >= observed - RETENTION and values[at] is not None:
                rows[key, at] = values[at]
    return rows


def read_versions(store: Any) -> Rows:
    rows: Rows = dict(store.all())
    for key in "abcde":
        first = max(0, store._observed.value - RETENTION)
        for version in store.versions(key, first):
            if version.timestamp >= first:
                rows[key, version.timestamp] = version.value
                at = store.get(key, as_of=version.timestamp)
                assert (at.value, at.timestamp) == version[:2]
    return rows


# -- entries that make room, or are over


def put(store: Any, record: Record) -> None:
    store.put(record.key, record.value)


def use_and_put(store: Any, record: Record) -> None:
    store.get("a")
    store.put(record.key, record.value)


def last_used(said: Sequence[Said]) -> Rows:
    rows: OrderedDict[str, str] = OrderedDict()
    for key, value, _ in said:
        if "a" in rows:
            rows.move_to_end("a")
        if value is None:
            rows.pop(key, None)
            continue
        if key not in rows and len(rows) == MAX_ENTRIES:
            rows.popitem(last=False)
        rows[key] = value
        rows.move_to_end(key)
    return dict(rows)


def read_entries(store: Any) -> Rows:
    rows = dict(store.all())
    assert {key: store.get(key) for key in rows} == rows
    return rows


def living(said: Sequence[Said]) -> Rows:
    rows = {each.key: each for each in said}
    highest = max((each.timestamp for each in said), default=0)
    return {
        key: each.value for key, each in rows.items()
        if each.value is not None and each.timestamp >= highest - RETENTION
    }  # fmt: skip


def read_timestamped(store: Any) -> Rows:
    return {key: tuple(row) for key, row in store.all()}


def put_timestamped(store: Any, record: Record) -> None:
    store.put(record.key, record.value and ValueAndTimestamp(record.value, record.timestamp))


# -- rows with headers


HEADERS: Headers = [("h", b"1")]


def put_headed(store: Any, record: Record) -> None:
    store.put(record.key, record.value and ValueTimestampHeaders(record.value, record.timestamp, HEADERS))


def put_headed_window(store: Any, record: Record) -> None:
    row = record.value and ValueTimestampHeaders(record.value, record.timestamp, HEADERS)
    store.put(record.key, row, start_of(record.timestamp))


def headed_window_row(said: Said) -> tuple[int, Any, Any]:
    start, window, value = window_row(said)
    return start, window, value and ValueTimestampHeaders(value, said.timestamp, HEADERS)


def put_headed_session(store: Any, record: Record) -> None:
    store.put(
        session_of(record.key, record.timestamp), record.value and AggregationWithHeaders(record.value, HEADERS)
    )


def headed_session_row(said: Said) -> tuple[int, Any, Any]:
    end, session, value = session_row(said)
    return end, session, value and AggregationWithHeaders(value, HEADERS)


CASES = [
    Case(stores.key_value("s", str, str), put, lambda said: living_for_ever(said), read_entries),
    Case(
        stores.timestamped_key_value("s", str, str), put_timestamped,
        lambda said: {key: (value, last_time(said, key)) for key, value in living_for_ever(said).items()},
        read_timestamped,
    ),
    Case(
        stores.window("s", str, str, size=SIZE, retention=RETENTION), put_window, bounded(window_row), read_windows
    ),
    Case(
        stores.timestamped_window("s", str, str, size=SIZE, retention=RETENTION), put_timed_window,
        bounded(timed_window_row), read_windows,
    ),
    Case(stores.session("s", str, str, retention=RETENTION), put_session, bounded(session_row), read_sessions),
    Case(stores.versioned("s", str, str, history=RETENTION), put_version, versions, read_versions),
    Case(
        stores.lru("s", str, str, max_entries=MAX_ENTRIES, in_memory=False), use_and_put, last_used, read_entries
    ),
    Case(stores.key_value("s", str, str, ttl=RETENTION), put, living, read_entries),
    Case(
        stores.timestamped_key_value_with_headers("s", str, str), put_headed,
        lambda said: {
            key: ValueTimestampHeaders(value, last_time(said, key), HEADERS)
            for key, value in living_for_ever(said).items()
        },
        read_entries,
    ),
    Case(
        stores.timestamped_window_with_headers("s", str, str, size=SIZE, retention=RETENTION), put_headed_window,
        bounded(headed_window_row), read_windows,
    ),
    Case(
        stores.session_with_headers("s", str, str, retention=RETENTION), put_headed_session,
        bounded(headed_session_row), read_sessions,
    ),
]  # fmt: skip


def living_for_ever(said: Sequence[Said]) -> Rows:
    rows = {each.key: each.value for each in said}
    return {key: value for key, value in rows.items() if value is not None}


def last_time(said: Sequence[Said], key: str) -> int:
    return next(each.timestamp for each in reversed(said) if each.key == key)
