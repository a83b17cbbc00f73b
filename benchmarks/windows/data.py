"""The input of `windows`, and what must come out of it.

Record number n has the time `start_ms` + n, so that all records of a run have different times, over both topics of a
join, too, and a task that takes the earlier record first has one order only. With 10,000 keys a key has six records in
a window of a minute, 2.7 in a session, and half a partner in a join.

*Guarantees*: the same seed gives the same records; a longer input begins with the shorter one's.
*Assumes*: all records of a key are in one partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final

import orjson

from benchmarks.count.data import SAID, VALUE_BYTES, Data
from benchmarks.windows import (
    ADVANCE_MS,
    COUNT,
    GAP_MS,
    GRACE_MS,
    HOPPING,
    SESSIONS,
    STATELESS,
    STREAM_JOIN,
    SUPPRESS,
    TABLE_JOIN,
    TUMBLING,
    WINDOW_MS,
    WITHIN_MS,
)

UPDATES: Final = 10
"""Of so many records of a table join one is the table's."""

LONG, START, SESSION = Struct(">q"), Struct(">q"), Struct(">qq")

Output = tuple[bytes, "bytes | None"]
"""Key and value."""


@dataclass(frozen=True)
class Input:
    """`records` of one kind, of `keys` customers; of a table join, `first` rows of the table besides, before them."""

    kind: str
    records: int
    keys: int
    seed: int
    start_ms: int

    @property
    def first(self) -> int:
        return self.keys if self.kind == TABLE_JOIN else 0

    def others(self) -> int:
        """The number of records in the second topic of a join."""
        return sum(1 for number in range(self.records) if self._is_other(number)) + self.first

    def __iter__(self) -> Iterator[tuple[bool, bytes, int]]:
        """Whether the record is of the second topic, its key and its number."""
        for number in range(self.first):
            yield True, b"customer-%06d" % number, number
        for number, (key, _) in enumerate(Data(self.records, self.keys, self.seed)):
            yield self._is_other(number), key, self.first + number

    def _is_other(self, number: int) -> bool:
        if self.kind == STREAM_JOIN:
            return number % 2 == 1
        return self.kind == TABLE_JOIN and number % UPDATES == 0

    def expected(self) -> Iterator[Output]:
        """The outputs, those of each key in order."""
        return _EXPECTED[self.kind](self)

    def owner(self, key: bytes) -> bytes:
        """The customer of an output's key."""
        return key[: len(key) - _TAIL[self.kind]]


def value_of(number: int) -> bytes:
    """`VALUE_BYTES` of JSON."""
    head = b'{"id":%d,"amount":%d,"text":"' % (number, number % 1000)
    return head.ljust(VALUE_BYTES - 2, b"x") + b'"}'


def _short(given: Input) -> Iterator[Output]:
    for _, key, number in given:
        if (amount := number % 1000) % 10 > 0:
            yield key, b'{"id":%d,"amount":%d}' % (number, amount)


def _counts(given: Input) -> Iterator[Output]:
    counts: dict[bytes, int] = {}
    for _, key, _ in given:
        counts[key] = counts.get(key, 0) + 1
        yield key, LONG.pack(counts[key])


def _windows(given: Input) -> Iterator[Output]:
    open_windows: dict[bytes, tuple[int, int]] = {}
    for _, key, number in given:
        start = (given.start_ms + number) // WINDOW_MS * WINDOW_MS
        before, count = open_windows.get(key, (start, 0))
        count = count + 1 if before == start else 1
        open_windows[key] = start, count
        yield key + START.pack(start), LONG.pack(count)


def _hopping_windows(given: Input) -> Iterator[Output]:
    open_windows: dict[bytes, dict[int, int]] = {}
    for _, key, number in given:
        time, counts = given.start_ms + number, open_windows.get(key, {})
        newest = time // ADVANCE_MS * ADVANCE_MS
        starts = range(newest - WINDOW_MS + ADVANCE_MS, newest + 1, ADVANCE_MS)
        open_windows[key] = {start: counts.get(start, 0) + 1 for start in starts}
        yield from ((key + START.pack(start), LONG.pack(count)) for start, count in open_windows[key].items())


def _closed_windows(given: Input) -> Iterator[Output]:
    """By window, then by key. Each partition has a record of about the input's end, so that the same windows are closed
    in all of them."""
    last = {key: value for key, value in _windows(given) if value is not None}
    closes = given.start_ms + given.records - 1 - GRACE_MS - WINDOW_MS
    closed = [key for key in last if START.unpack(key[-START.size :])[0] <= closes]
    yield from ((key, last[key]) for key in sorted(closed, key=lambda key: (key[-START.size :], key)))


def _sessions(given: Input) -> Iterator[Output]:
    sessions: dict[bytes, tuple[int, int, int]] = {}
    for _, key, number in given:
        time = given.start_ms + number
        start, end, count = sessions.get(key, (time, -GAP_MS, 0))
        if time - end > GAP_MS:
            start, count = time, 0
        else:
            yield key + SESSION.pack(end, start), None
        sessions[key] = start, time, count + 1
        yield key + SESSION.pack(time, start), LONG.pack(count + 1)


def _with_table(given: Input) -> Iterator[Output]:
    rows: dict[bytes, int] = {}
    for is_other, key, number in given:
        if is_other:
            rows[key] = number
        else:
            yield key, _met(number, rows[key])


def _with_stream(given: Input) -> Iterator[Output]:
    kept: tuple[dict[bytes, deque[int]], ...] = ({}, {})
    for is_other, key, number in given:
        partners = kept[not is_other].setdefault(key, deque())
        while partners and partners[0] < number - WITHIN_MS:
            partners.popleft()
        for partner in partners:
            yield key, _met(partner, number) if is_other else _met(number, partner)
        kept[is_other].setdefault(key, deque()).append(number)


def _met(sale: int, other: int) -> bytes:
    return b'{"sale":%d,"other":%d}' % (sale, other)


_EXPECTED: Final[dict[str, Callable[[Input], Iterator[Output]]]] = {
    STATELESS: _short,
    COUNT: _counts,
    TUMBLING: _windows,
    HOPPING: _hopping_windows,
    SUPPRESS: _closed_windows,
    SESSIONS: _sessions,
    TABLE_JOIN: _with_table,
    STREAM_JOIN: _with_stream,
}
_TAIL: Final = {
    STATELESS: 0, COUNT: 0, TUMBLING: START.size, HOPPING: START.size, SUPPRESS: START.size, SESSIONS: SESSION.size,
    TABLE_JOIN: 0, STREAM_JOIN: 0,
}  # fmt: skip
"""The bytes of an output's key behind those of the customer's."""


def packed(kind: str, key: bytes, value: bytes | None) -> Output:
    """An output of a contender that writes numbers and windows as JSON, as the others write it. What isn't of that form
    is left as it is."""
    try:
        if kind == COUNT:
            return key, LONG.pack(orjson.loads(value or b""))
        if kind == TUMBLING:
            found = orjson.loads(value or b"")
            return key + START.pack(found["start"]), LONG.pack(found["count"])
    except (orjson.JSONDecodeError, KeyError, TypeError, StructError):
        pass
    return key, value


def last_of(outputs: Iterable[Output]) -> Iterator[Output]:
    """Each key's last value, by key, but for those that were taken back."""
    last = dict(outputs)
    yield from ((key, last[key]) for key in sorted(last) if last[key] is not None)


class Outputs:
    """Outputs, folded by customer: how many, and a number that depends on all of them and their order. Records of a
    changelog are folded by key: a reader needs only the order of each key's records."""

    def __init__(self, given: Input, outputs: Iterable[Output], *, by_key: bool = False) -> None:
        self._folded: dict[bytes, tuple[int, int]] = {}
        folded = self._folded
        for key, value in outputs:
            owner = key if by_key else given.owner(key)
            count, number = folded.get(owner, (0, 0))
            folded[owner] = count + 1, hash((number, key, value))

    def __len__(self) -> int:
        return sum(count for count, _ in self._folded.values())

    def differences(self, other: Outputs) -> list[str]:
        """In words, at most `SAID` and how many more: where `other`, which was found, isn't what this is."""
        wanted, found = self._folded, other._folded
        wrong = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
        said = [
            f"{key!r}: {found.get(key, (0, 0))[0]} outputs, other ones than the {wanted.get(key, (0, 0))[0]} due"
            for key in wrong[:SAID]
        ]
        return said if len(wrong) <= SAID else [*said, f"and {len(wrong) - SAID} more"]
