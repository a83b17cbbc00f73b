"""What windows must lead to: which windows there are follows from the records, and what a record changes is what there
is with it and wasn't without it. No window is ever brought forward from record to record.

| windows | of a key |
|---|---|
| tumbling, hopping | [start, start + size), for each multiple of the advance |
| sliding | [t - size, t] and [t + 1, t + 1 + size] for each record at t, both ends included; none begins before 0 |
| session | the records without a gap of more than `size` between two of them; from its first to its last record |

*Guarantees*: uses nothing of the runtime.
*Assumes*: of sliding windows no record is late for some of its windows and not for others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from compat_tests.random_topologies.shapes import COUNT, HOPPING, LETTERS, MOST, SESSION, SLIDING, Windows

Span = tuple[int, int]
"""Start and end of a window."""


class Output(NamedTuple):
    """Key, value and timestamp of what goes to the output topic."""

    key: bytes | None
    value: bytes | None
    timestamp: int


class Taken(NamedTuple):
    """A record that came. `closes`: windows that end until then had closed when it did."""

    timestamp: int
    number: int
    value: bytes | None
    closes: int


RESULTS: Mapping[str, Callable[[list[bytes | None]], bytes]] = {
    COUNT: lambda values: b"%d" % len(values),
    MOST: lambda values: max(value or b"" for value in values),
    LETTERS: lambda values: bytes(sorted(b"".join(value or b"" for value in values))),
}
"""What the values of a window come to, by the path's end."""


class Session(NamedTuple):
    end: int
    start: int
    values: tuple[bytes | None, ...]


class WindowsOfATask:
    """All keys' windows in one task. `table`: value and timestamp of each window, as updates have it."""

    def __init__(self, windows: Windows, end: str) -> None:
        self._windows, self._result = windows, RESULTS[end]
        self._taken: defaultdict[bytes, list[Taken]] = defaultdict(list)
        self._sessions: defaultdict[bytes, list[Session]] = defaultdict(list)
        self._newest, self._number = -1, 0
        self._open: list[tuple[int, int, bytes]] = []
        self._known: set[tuple[bytes, Span]] = set()
        self.table: dict[tuple[bytes, Span], tuple[bytes, int]] = {}

    def take(self, key: bytes | None, value: bytes | None, timestamp: int) -> list[Output]:
        """What the record leads to, in order (of sliding windows: in any)."""
        if key is None or (value is None and self._windows.kind == SLIDING):
            return []
        before, self._newest = self._newest, max(self._newest, timestamp)
        self._number += 1
        if self._windows.kind == SESSION:
            updates = self._into_a_session(key, value, timestamp, before)
        else:
            updates = self._into_windows(key, Taken(timestamp, self._number, value, self._closes))
        for (of, (start, end)), row in updates:
            self._set(of, start, end, row)
        if self._windows.on_close:
            return self._closed()
        return [_named(of, span, row) for (of, span), row in updates]

    def outputs(self) -> list[Output]:
        """What each window ends with."""
        return [_named(key, span, row) for (key, span), row in self.table.items()]

    @property
    def _closes(self) -> int:
        more = self._windows.size if self._windows.kind == SESSION else 0
        return self._newest - self._windows.grace - more

    def _set(self, key: bytes, start: int, end: int, row: tuple[bytes, int] | None) -> None:
        if row is None:
            self.table.pop((key, (start, end)), None)
            return
        if (key, (start, end)) not in self._known:
            self._known.add((key, (start, end)))
            heappush(self._open, (end, start, key))
        self.table[key, (start, end)] = row

    def _closed(self) -> list[Output]:
        """The windows that have closed by now and hadn't before, the earliest first."""
        found = []
        ends_belong = self._windows.kind in (SLIDING, SESSION)
        while self._open and (self._open[0][0] < self._closes + (not ends_belong)):
            end, start, key = heappop(self._open)
            row = self.table.get((key, (start, end)))
            if row is not None:
                found.append(_named(key, (start, end), row))
        return found

    # ---- tumbling, hopping, sliding

    def _into_windows(self, key: bytes, one: Taken) -> Updates:
        """What there is around the record with it that is otherwise without it."""
        if self._windows.kind == SLIDING and one.timestamp + 1 + self._windows.size <= one.closes:
            return []
        reach, known = 2 * self._windows.size + 2, self._taken[key]
        near = known[bisect_left(known, (one.timestamp - reach,)) : bisect_right(known, (one.timestamp + reach,))]
        insort(known, one)
        before, after = self._contents(near), self._contents([*near, one])
        changed = {
            span: some
            for span, some in sorted(after.items())
            if span[0] <= one.timestamp + 1 and span[1] >= one.timestamp and len(before.get(span, ())) != len(some)
        }
        return [((key, span), self._row(some)) for span, some in changed.items()]

    def _contents(self, taken: Iterable[Taken]) -> dict[Span, list[Taken]]:
        """The windows that there are when these records have come, with the records in each."""
        some, size = sorted(taken), self._windows.size
        found: defaultdict[Span, list[Taken]] = defaultdict(list)
        if self._windows.kind == SLIDING:
            for start in {start for one in some for start in (max(0, one.timestamp - size), one.timestamp + 1)}:
                inside = [one for one in some if start <= one.timestamp <= start + size]
                if inside:
                    found[start, start + size] = inside
            return found
        advance = self._windows.advance if self._windows.kind == HOPPING else size
        for one in some:
            first = max(0, (one.timestamp - size) // advance * advance + advance)
            for start in range(first, one.timestamp + 1, advance):
                if start + size > one.closes:
                    found[start, start + size].append(one)
        return found

    def _row(self, some: list[Taken]) -> tuple[bytes, int]:
        return self._result([one.value for one in some]), max(one.timestamp for one in some)

    # ---- sessions

    def _into_a_session(self, key: bytes, value: bytes | None, timestamp: int, newest_before: int) -> Updates:
        """The sessions that the record is near to, and that aren't forgotten, become one with it. A session that takes
        a record is deleted and made anew, but for one that stays a moment."""
        gap = self._windows.size
        gone = newest_before - self._windows.grace - gap
        known = self._sessions[key]
        near = [one for one in sorted(known) if one.end > gone and one.start - gap <= timestamp <= one.end + gap]
        start, end = min([timestamp, *(one.start for one in near)]), max([timestamp, *(one.end for one in near)])
        if end < self._closes:
            return []
        values = (*(each for one in near for each in one.values), value)
        self._sessions[key] = [*(one for one in known if one not in near), Session(end, start, values)]
        deleted = [] if start == end else [((key, (one.start, one.end)), None) for one in near]
        return [*deleted, ((key, (start, end)), (self._result(list(values)), end))]


Updates = list[tuple[tuple[bytes, Span], tuple[bytes, int] | None]]
"""Windows of keys, with value and timestamp; None: it is deleted."""


def _named(key: bytes, span: Span, row: tuple[bytes, int] | None) -> Output:
    """As the program writes it. A session that is deleted is so at its end."""
    name = b"%s@%d/%d" % (key, *span)
    return Output(name, None, span[1]) if row is None else Output(name, *row)
