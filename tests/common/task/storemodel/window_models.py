"""What window and session stores must give, said by dicts with times.

*Guarantees*: uses nothing of the stores but the tuples that they give.
*Assumes*: as `model_values.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milestones.common.windowed import FOREVER, Windowed
from tests.common.task.storemodel.model_values import (
    RETENTION_MS,
    SEGMENT_MS,
    SIZE_MS,
    As,
    Model,
    Rows,
    Value,
    aggregation,
    between,
    plain,
    timed,
    with_headers,
)


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

    def rows_joined(self, key: str, first: int, last: int) -> Any:
        return self._of(key, first, last, self.shown)

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

    def replace_row(self, key: str, value: Value | None, start: int) -> Any:
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

    def merge_near(self, key: str, value: Value, earliest: int, latest: int) -> Any:
        found = self.found(lambda other, start, end: other == key and end >= earliest and start <= latest)
        rows = [row for row, _ in found]
        merged = key, min([row[1] for row in rows], default=earliest), max([row[2] for row in rows], default=earliest)
        taken = self.set(merged, value.bare)
        for row in rows:
            if row != merged:
                self.set(row, None)
        return [(Windowed(*row), former.list) for row, former in found], taken

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
