"""What stores of every kind but the key-value ones must give, said by dicts with times, call by call.

A model has the methods of its kind of store, and takes and gives the same things; a value is a `Value` in what it
takes. Methods that stores don't have are steps of operators, and stand for both in `STEPS`.

*Guarantees*: uses nothing of the stores but the tuples that they give.
*Assumes*: keys are texts; times are 1 or later.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from milestones.common.records import Headers
from milestones.common.state.spec import StoreKind
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.stores_with_headers import AggregationWithHeaders, ValueTimestampHeaders
from milestones.common.state.stores.suppress_buffer import ABSENT
from milestones.common.state.stores.suppress_layout import Context
from milestones.common.state.stores.versioned_store import VersionedValue
from milestones.common.state.stores.versions import NOT_PUT, STILL
from milestones.common.windowed import FOREVER, Windowed

SIZE_MS, RETENTION_MS, HISTORY_MS, TTL_MS, GRACE_MS, MOST = 40_000, 150_000, 100, 50, 20, 3
SEGMENT_MS, HISTORY_SEGMENT_MS = RETENTION_MS // 2, 30


class Value(NamedTuple):
    """A value that is put, a list of one number, with its own time. `headers`: of stores that have them."""

    number: int
    time: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def list(self) -> list[int]:
        """Another object each time: user code may change it."""
        return [self.number]

    @property
    def raw(self) -> tuple[list[int], int]:
        return self.list, self.time

    @property
    def bare(self) -> Value:
        """Operators give no headers."""
        return self._replace(headers=())


As: TypeAlias = Callable[[Value], Any]
Rows: TypeAlias = dict[tuple[str, int, int], Value]


def plain(value: Value) -> Any:
    return value.list


def timed(value: Value) -> Any:
    return ValueAndTimestamp(*value.raw)


def with_headers(value: Value) -> Any:
    return ValueTimestampHeaders(*value.raw, [*value.headers])


def aggregation(value: Value) -> Any:
    return AggregationWithHeaders(value.list, [*value.headers])


class Model:
    """`shown`: what user code puts and gets for a value. `in_memory`: whether the store is; some have another order."""

    shown: As = staticmethod(plain)
    in_memory = False

    def __init__(self) -> None:
        self.now = 1
        """The time of the record in work."""

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def approximate(self) -> bool:
        return True


# -- windows and sessions


class Segmented(Model):
    """Rows by (key, start, number or end). `at`: which of these is a row's time."""

    at: int

    def __init__(self) -> None:
        super().__init__()
        self.rows: Rows = {}
        self.observed = -1

    def may_put(self, time: int) -> bool:
        self.observed = max(self.observed, time)
        return time // SEGMENT_MS >= max(0, (self.observed - RETENTION_MS) // SEGMENT_MS)

    def set(self, row: tuple[str, int, int], value: Value | None) -> bool:
        if not self.may_put(row[self.at]):
            return False
        if value is None:
            self.rows.pop(row, None)
        else:
            self.rows[row] = value
        return True

    def found(self, wanted: Callable[[str, int, int], bool]) -> list[tuple[tuple[str, int, int], Value]]:
        """In the order of a scan: by segment, key, time; in memory by segment, the first time of the tail, key."""
        seen = [
            one for one in self.rows.items() if one[0][self.at] > self.observed - RETENTION_MS and wanted(*one[0])
        ]
        return sorted(seen, key=lambda one: self._order(one[0]))

    def _order(self, row: tuple[str, int, int]) -> tuple[Any, ...]:
        segment, key, end = row[self.at] // SEGMENT_MS, row[0].encode(), tail(row, self.at)
        return (segment, end[:8], key, self._last(row)) if self.in_memory else (segment, key + end)

    def _last(self, row: tuple[str, int, int]) -> int:
        """What decides in memory between rows of one key and time: the earlier put, the later start, comes first."""
        return -row[1] if self.at == 2 else row[2]


def tail(row: tuple[str, int, int], at: int) -> bytes:
    _, first, second = row
    if at == 2:
        return second.to_bytes(8, "big") + first.to_bytes(8, "big")
    return first.to_bytes(8, "big") + second.to_bytes(4, "big")


def between(key: str, low: str | None, high: str | None) -> bool:
    data = key.encode()
    return (low is None or low.encode() <= data) and (high is None or data <= high.encode())


class Windows(Segmented):
    at = 1

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def put(self, key: str, value: Value | None, start: int) -> bool:
        return self.set((key, start, 0), value)

    def _windows(self, low: str | None, high: str | None, first: int, last: int) -> list[Any]:
        found = self.found(lambda key, start, _: between(key, low, high) and first <= start <= last)
        return [(Windowed(key, start, start + SIZE_MS), self.shown(value)) for (key, start, _), value in found]

    def _of(self, key: str, first: int, last: int, shown: As) -> list[Any]:
        found = self.found(lambda other, start, _: other == key and first <= start <= last)
        return [(start, shown(value)) for (_, start, _), value in found]

    def fetch(self, key: str, first: int, last: int | None = None) -> Any:
        if last is not None:
            return self._of(key, first, last, self.shown)
        found = self._of(key, first, first, self.shown)
        return found[0][1] if found else None

    def backward_fetch(self, key: str, first: int, last: int) -> Any:
        return self._of(key, first, last, self.shown)[::-1]

    def fetch_range(self, low: str | None, high: str | None, first: int, last: int) -> Any:
        return self._windows(low, high, first, last)

    def backward_fetch_range(self, low: str | None, high: str | None, first: int, last: int) -> Any:
        return self._windows(low, high, first, last)[::-1]

    def fetch_all(self, first: int, last: int) -> Any:
        return self._windows(None, None, first, last)

    def backward_fetch_all(self, first: int, last: int) -> Any:
        return self._windows(None, None, first, last)[::-1]

    def all(self) -> Any:
        return self._windows(None, None, 0, FOREVER)

    def backward_all(self) -> Any:
        return self._windows(None, None, 0, FOREVER)[::-1]

    def closed(self, first: int, last: int) -> Any:
        first = max(first, self.observed - RETENTION_MS + 1)
        found = self.found(lambda _, start, __: first <= start <= last)
        shown = plain if self.shown is plain else Value.raw.fget  # type: ignore[attr-defined]
        return [
            (Windowed(key, start, start + SIZE_MS), shown(value))
            for (key, start, _), value in sorted(found, key=lambda one: (one[0][1], one[0][0].encode()))
        ]


class PlainWindows(Windows):
    shown = staticmethod(plain)


class Duplicates(Windows):
    """Each put adds a row."""

    def put(self, key: str, value: Value | None, start: int) -> bool:
        if value is None:
            return True
        if not self.may_put(start):
            return False
        self.number += 1
        self.rows[key, start, self.number] = value
        return True

    put_one_encoded = put


class TimedWindows(Windows):
    shown = staticmethod(timed)

    def put_window(self, key: str, value: Value | None, start: int) -> bool:
        return self.set((key, start, 0), None if value is None else value.bare)

    def replace_at(self, key: str, value: Value | None, start: int) -> Any:
        former = self.fetch_raw(key, start)
        return former, self.put_window(key, value, start)

    def fetch_raw(self, key: str, start: int) -> Any:
        found = self._of(key, start, start, lambda value: value.raw)
        return found[0][1] if found else None

    def get_raw(self, window: Windowed[str]) -> Any:
        return self.fetch_raw(window.key, window.start)

    def rows_of(self, key: str, first: int, last: int) -> Any:
        return self._of(key, first, last, lambda value: value.raw)

    def backward_rows(self, key: str, first: int, last: int) -> Any:
        return self.rows_of(key, first, last)[::-1]


class TimedWindowsWithHeaders(TimedWindows):
    shown = staticmethod(with_headers)


class Sessions(Segmented):
    at = 2
    shown = staticmethod(plain)

    def put(self, session: Windowed[str], value: Value | None) -> None:
        self.set(tuple(session), value)

    def put_raw(self, session: Windowed[str], value: Value | None) -> bool:
        return self.set(tuple(session), None if value is None else value.bare)

    def remove(self, session: Windowed[str]) -> None:
        self.set(tuple(session), None)

    def fetch_session(self, key: str, start: int, end: int) -> Any:
        found = self.found(lambda *row: row == (key, start, end))
        return self.shown(found[0][1]) if found else None

    def get_raw(self, session: Windowed[str]) -> Any:
        found = self.found(lambda *row: row == tuple(session))
        return (found[0][1].list, session.end) if found else None

    def _sessions(self, low: str | None, high: str | None, earliest: int, latest: int, last: int = FOREVER) -> Any:
        found = self.found(
            lambda key, start, end: between(key, low, high) and earliest <= end <= last and start <= latest
        )
        return [(Windowed(*row), self.shown(value)) for row, value in found]

    def replace_near(self, key: str, value: Value | None, earliest: int, latest: int) -> Any:
        found = self.found(lambda other, start, end: other == key and end >= earliest and start <= latest)
        for row, _ in found:
            self.set(row, None if value is None else value.bare)
        return [(Windowed(*row), former.list) for row, former in found]

    def find_sessions(self, key: str, earliest: int, latest: int) -> Any:
        return self._sessions(key, key, earliest, latest)

    def backward_find_sessions(self, key: str, earliest: int, latest: int) -> Any:
        return self._sessions(key, key, earliest, latest)[::-1]

    def find_sessions_of_range(self, low: str | None, high: str | None, earliest: int, latest: int) -> Any:
        return self._sessions(low, high, earliest, latest)

    def backward_find_sessions_of_range(self, low: str | None, high: str | None, earliest: int, latest: int) -> Any:
        return self._sessions(low, high, earliest, latest)[::-1]

    def find_sessions_by_end(self, earliest: int, latest: int) -> Any:
        return self._sessions(None, None, earliest, FOREVER, latest)

    def fetch(self, key: str) -> Any:
        return self._sessions(key, key, 0, FOREVER)

    def backward_fetch(self, key: str) -> Any:
        return self._sessions(key, key, 0, FOREVER)[::-1]

    def fetch_range(self, low: str | None, high: str | None) -> Any:
        return self._sessions(low, high, 0, FOREVER)

    def backward_fetch_range(self, low: str | None, high: str | None) -> Any:
        return self._sessions(low, high, 0, FOREVER)[::-1]

    def closed(self, first: int, last: int) -> Any:
        first = max(first, self.observed - RETENTION_MS + 1)
        found = self.found(lambda _, __, end: first <= end <= last)
        found.sort(key=lambda one: (one[0][2], one[0][1], one[0][0].encode()))
        return [(Windowed(*row), value.list) for row, value in found]


class SessionsWithHeaders(Sessions):
    shown = staticmethod(aggregation)


# -- histories, the last used, times to live


class Versions(Model):
    """Each version of each key; None is a deletion."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, dict[int, Value | None]] = {}
        self.observed = -1

    def put(self, key: str, value: Value | None, time: int) -> int:
        if time < self.observed - HISTORY_MS:
            return NOT_PUT
        self.observed = max(self.observed, time)
        versions = self.of.setdefault(key, {})
        later = [each for each in versions if each > time]
        if value is None and not later and versions.get(time) is not None:
            # The deletion of the latest version at its very time leaves no trace of its own, but where a former version
            # ends there.
            former = [each for each in versions if each < time]
            if not former or versions[max(former)] is None:
                del versions[time]
                return STILL
        versions[time] = value
        return min(later, default=STILL)

    def put_raw(self, key: str, value: Value | None, time: int) -> None:
        self.put(key, value, time)

    def delete_raw(self, key: str, time: int) -> None:
        self.put(key, None, time)

    def delete(self, key: str, time: int) -> Any:
        former = None if time < self.observed - HISTORY_MS else self.get(key, time)
        self.put(key, None, time)
        return former

    def get_as_of(self, key: str, time: int | None) -> Any:
        versions = self.of.get(key, {})
        if time is not None and time < self.observed - HISTORY_MS and max(versions, default=0) > time:
            return None
        since = max((each for each in versions if time is None or each <= time), default=None)
        value = None if since is None else versions[since]
        return None if value is None else (value.list, since)

    def get_raw(self, key: str) -> Any:
        return self.get_as_of(key, None)

    def get(self, key: str, time: int | None = None) -> Any:
        found = self.get_as_of(key, time)
        return None if found is None else ValueAndTimestamp(*found)

    def versions(self, key: str, first: int, last: int) -> Any:
        found = sorted(self.of.get(key, {}).items())
        untils = [*(since for since, _ in found[1:]), None][: len(found)]
        return [
            VersionedValue(value.list, since, until)
            for (since, value), until in zip(found, untils, strict=True)
            if value is not None and since <= last and (until is None or until > first)
        ]

    def all(self) -> Any:
        found = {key: self.get(key) for key in self.of}
        return sorted(((k, v) for k, v in found.items() if v is not None), key=lambda one: one[0].encode())


class KeyValues(Model):
    """Values by key, some of which are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, Value] = {}

    def visible(self) -> list[tuple[str, Any]]:
        return sorted(((k, v.list) for k, v in self.entries.items()), key=lambda one: one[0].encode())

    def set(self, key: str, value: Value | None) -> None:
        raise NotImplementedError

    def get(self, key: str) -> Any:
        return dict(self.visible()).get(key)

    def put(self, key: str, value: Value | None) -> None:
        self.set(key, value)

    def put_if_absent(self, key: str, value: Value) -> Any:
        former = self.get(key)
        if former is None:
            self.set(key, value)
        return former

    def put_all(self, entries: Iterable[tuple[str, Value | None]]) -> None:
        for key, value in entries:
            self.set(key, value)

    def delete(self, key: str) -> Any:
        former = self.get(key)
        self.set(key, None)
        return former

    def range(self, low: str | None, high: str | None) -> Any:
        return [one for one in self.visible() if between(one[0], low, high)]

    def reverse_range(self, low: str | None, high: str | None) -> Any:
        return self.range(low, high)[::-1]

    def all(self) -> Any:
        return self.visible()

    def reverse_all(self) -> Any:
        return self.visible()[::-1]

    def prefix_scan(self, prefix: str) -> Any:
        return [one for one in self.visible() if one[0].startswith(prefix)]


class LastUsed(KeyValues):
    """The eldest entry first."""

    def set(self, key: str, value: Value | None) -> None:
        if value is not None and key not in self.entries and len(self.entries) == MOST:
            del self.entries[next(iter(self.entries))]
        self.entries.pop(key, None)
        if value is not None:
            self.entries[key] = value

    def get(self, key: str) -> Any:
        if key not in self.entries:
            return None
        self.entries[key] = self.entries.pop(key)
        return self.entries[key].list

    def approximate_num_entries(self) -> int:
        return len(self.entries)


class Expiring(KeyValues):
    """The time of a value is that of the record that put it."""

    def __init__(self) -> None:
        super().__init__()
        self.highest = -1

    def visible(self) -> list[tuple[str, Any]]:
        self.highest = max(self.highest, self.now)
        return [one for one in super().visible() if self.entries[one[0]].time >= self.highest - TTL_MS]

    def set(self, key: str, value: Value | None) -> None:
        self.highest = max(self.highest, self.now)
        self.entries.pop(key, None)
        if value is not None:
            self.entries[key] = value._replace(time=self.now)


# -- what operators keep back


class Suppressed(Model):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, tuple[int, Value | None, Value | None, Value | None, Context]] = {}

    def _first(self) -> str | None:
        return min(self.kept, key=lambda key: (self.kept[key][0], key.encode()), default=None)

    def keep(self, time: int, key: str, new: Value | None, old: Value | None, context: Context) -> None:
        before = self.kept.get(key)
        self.kept[key] = (*((time, old) if before is None else before[:2]), old, new, context)

    def take_first(self) -> Any:
        key = self._first()
        if key is None:
            return None
        _, _, old, new, context = self.kept.pop(key)
        return key, (listed(new), listed(old)), context

    def first_times(self) -> Any:
        key = self._first()
        return len(self.kept), FOREVER if key is None else self.kept[key][0]

    def prior_of(self, key: str) -> Any:
        return listed(self.kept[key][1]) if key in self.kept else "absent"


class Waiting(Model):
    """Records in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, Value | None, Context]] = []
        self.observed = -1

    def wait(self, key: str, value: Value | None, context: Context) -> None:
        self.observed = max(self.observed, context.timestamp)
        self.records.append((key, value, context))

    def too_late(self, time: int, grace: int) -> bool:
        return time < self.observed - grace

    def take_due(self, grace: int) -> Any:
        due = [one for one in self.records if one[2].timestamp <= self.observed - grace]
        self.records = [one for one in self.records if one[2].timestamp > self.observed - grace]
        due.sort(key=lambda one: (one[2].timestamp, one[0].encode()))
        return [(key, listed(value), context) for key, value, context in due]


def listed(value: Value | None) -> Any:
    return None if value is None else value.list


# -- what operators do in several calls, on a store


def _replace_at(store: Any, key: str, value: Any, start: int, time: int) -> Any:
    place = store.place(key, start)
    return store.row_at(place, start), store.put_at(place, value, time, start)


def _replace_near(store: Any, key: str, value: Any, earliest: int, latest: int) -> Any:
    found = store.near(key, earliest, latest)
    for place, session, _ in found:
        store.put_at(place, value, session.end)
    return [(session, former) for _, session, former in found]


def _take_first(store: Any) -> Any:
    if not store.held()[0]:
        return None
    found = store.first()
    store.remove_first()
    return tuple(found)


def _prior_of(store: Any, key: str) -> Any:
    prior = store.prior(key)
    return "absent" if prior is ABSENT else prior


def _take_due(store: Any, grace: int) -> Any:
    found = store.due(grace)
    for one in found:
        store.remove(one.place)
    return [(one.key, one.value, one.context) for one in found]


def _closed(store: Any, first: int, last: int) -> Any:
    return list(store.closed_between(max(first, store._observed.value - RETENTION_MS + 1), last))


STEPS: Mapping[str, Callable[..., Any]] = {
    "closed": _closed,
    "put_one_encoded": lambda store, key, value, start: store.put_encoded(key, store.encode(value), start),
    "put_window": lambda store, key, value, start, time: store.put_window(key, value, time, start),
    "replace_at": _replace_at,
    "rows_of": lambda store, *arguments: store.rows(*arguments),
    "replace_near": _replace_near,
    "keep": lambda store, time, key, new, old, context: store.put(time, key, (new, old), context),
    "take_first": _take_first,
    "first_times": lambda store: (store.held()[0], store.first_time),
    "prior_of": _prior_of,
    "wait": lambda store, key, value, context: store.put(key, value, context),
    "take_due": _take_due,
    "approximate": lambda store: isinstance(store.approximate_num_entries(), int),
}
PLAINLY = {"put_window", "replace_at", "put_raw", "replace_near", "put_one_encoded", "keep", "wait"}
"""These take a value as a plain one, whatever user code puts."""
WITH_TIME = {"put_window", "replace_at"}
"""These take a value's time as a further argument."""


class Named(NamedTuple):
    """A kind of store, its model, and more of its spec."""

    kind: StoreKind
    model: type[Model]
    more: Mapping[str, Any]


_WINDOW = {"retention_ms": RETENTION_MS, "window_ms": SIZE_MS}
_SESSION = {"retention_ms": RETENTION_MS, "closing": True}
ALL: Mapping[str, Named] = {
    "window": Named("window", PlainWindows, {**_WINDOW, "closing": True}),
    "window of duplicates": Named("window", Duplicates, {**_WINDOW, "duplicates": True}),
    "timestamped window": Named("timestamped-window", TimedWindows, {**_WINDOW, "closing": True}),
    "timestamped window with headers": Named(
        "timestamped-window-with-headers", TimedWindowsWithHeaders, {**_WINDOW, "closing": True}
    ),
    "session": Named("session", Sessions, _SESSION),
    "session with headers": Named("session-with-headers", SessionsWithHeaders, _SESSION),
    "versioned": Named(
        "versioned", Versions, {"retention_ms": HISTORY_MS, "segment_interval_ms": HISTORY_SEGMENT_MS}
    ),
    "lru": Named("lru", LastUsed, {"max_entries": MOST}),
    "time to live": Named("expiring-key-value", Expiring, {"ttl_ms": TTL_MS}),
    "suppress": Named("suppress", Suppressed, {}),
    "join buffer": Named("join-buffer", Waiting, {}),
}


def given(named: Named, call: tuple[Any, ...]) -> tuple[Any, ...]:
    """The call as the store gets it: values as they are put, in objects that nobody else has."""
    name, *arguments = call
    shown = plain if name in PLAINLY or named.kind == "versioned" else named.model.shown
    made: list[Any] = [_given(argument, shown) for argument in arguments]
    if name in WITH_TIME:
        value = arguments[1]
        made.append(1 if value is None else value.time)
    return (name, *made)


def _given(argument: Any, shown: As) -> Any:
    if isinstance(argument, Value):
        return shown(argument)
    if isinstance(argument, list):  # entries of `put_all`
        return [(key, _given(value, shown)) for key, value in argument]
    return copy.deepcopy(argument)


def headers_for(number: int) -> Headers:
    """Among them none, one without a value, and one name twice."""
    return ([], [("n", b"%d" % number)], [("é", None), ("n", b""), ("n", b"2")])[number % 3]
