"""What a join of two streams must lead to when records come late, as docs/stream-joins.md promises it.

| kind | what was found |
|---|---|
| lost | a pair of records that came in time isn't joined, or a record that needs no partner leads to nothing |
| duplicate | a result is there twice, or a record has a result without a partner besides one with it |
| unknown | a result that no records account for |
| too-soon | a record is sent without a partner before its window and the grace are over |

*Guarantees*: pure; uses nothing of the runtime.
*Assumes*: one task took the records in this order. Each value is there once. The last records are later than any window
and its grace, so that nothing waits any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.random_topologies.shapes import Join


class Arrived(NamedTuple):
    """A record that reaches a join."""

    left: bool
    key: bytes | None
    value: bytes | None
    timestamp: int


class Result(NamedTuple):
    """What a join sent. `step`: the number of the record that it came with; `left`, `right`: the values, None for no
    partner."""

    step: int
    left: bytes | None
    right: bytes | None
    timestamp: int


def judge_late(join: Join, arrived: Sequence[Arrived], found: Iterable[Result]) -> Findings:
    """The findings of one run."""
    results = list(found)
    return [*_Run(join, arrived).judge(results)]


class _Run:
    def __init__(self, join: Join, arrived: Sequence[Arrived]) -> None:
        self._join, self._arrived = join, arrived
        self._newest = list(accumulate((one.timestamp for one in arrived), max))
        self._alone = {True: join.left_alone, False: join.right_alone}
        self._reach = {True: join.after, False: join.before}
        """How much newer a partner may be, by the side."""

    def judge(self, results: Sequence[Result]) -> Iterator[Finding]:
        must, may = Counter[tuple[bytes | None, bytes | None]](), Counter[tuple[bytes | None, bytes | None]]()
        times: dict[tuple[bytes | None, bytes | None], int] = {}
        for earlier, later in self._pairs():
            left, right = sorted((self._arrived[earlier], self._arrived[later]), key=lambda one: not one.left)
            pair = left.value, right.value
            times[pair] = max(left.timestamp, right.timestamp)
            if self._in_time(earlier, later):
                must[pair] += 1
            if not self._alone[self._arrived[earlier].left] or not self._done(earlier, self._newest[later]):
                may[pair] += 1
        pairs = Counter(one[1:3] for one in results if None not in one[1:3])
        yield from (Finding("lost", f"{pair}") for pair in must - pairs)
        yield from (Finding("unknown", f"{pair}") for pair in pairs if not may[pair])
        yield from (Finding("duplicate", f"{pair}") for pair in pairs if pairs[pair] > may[pair] > 0)
        yield from (Finding("unknown", f"{one}") for one in results if times.get(one[1:3], one[3]) != one[3])
        yield from self._judge_alone(results)

    def _judge_alone(self, results: Sequence[Result]) -> Iterator[Finding]:
        partners = Counter(value for one in results if None not in one[1:3] for value in one[1:3])
        alone = {one.left or one.right: one for one in results if None in one[1:3]}
        times = Counter(one.left or one.right for one in results if None in one[1:3])
        for at, one in enumerate(self._arrived):
            if one.value is None:
                continue
            lonely, needs_none = alone.pop(one.value, None), self._alone[one.left]
            if lonely is not None and (not needs_none or lonely[1:3].index(one.value) == one.left):
                yield Finding("unknown", f"{lonely}")
            elif needs_none and times[one.value] + bool(partners[one.value]) != 1:
                what = "lost" if not times[one.value] else "duplicate"
                yield Finding(what, f"{one}: {times[one.value]} without a partner, {partners[one.value]} with one")
            elif lonely is not None and one.key is not None and not self._done(at, self._newest[lonely.step]):
                yield Finding("too-soon", f"{lonely}")
        yield from (Finding("unknown", f"{one}") for one in alone.values())

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Of each two records that are near enough, the one that came first, and the other one."""
        for later, one in enumerate(self._arrived):
            for earlier, other in enumerate(self._arrived[:later]):
                left, right = (one, other) if one.left else (other, one)
                near = -self._join.before <= right.timestamp - left.timestamp <= self._join.after
                whole = None not in (one.key, one.value, other.value)
                if one.left != other.left and one.key == other.key and near and whole:
                    yield earlier, later

    def _in_time(self, earlier: int, later: int) -> bool:
        """Whether two records must be joined: the one isn't later than the grace, and the other is kept still."""
        join, first = self._join, self._arrived[earlier]
        kept = max(1, join.before + join.after + join.grace)
        side = [
            one.timestamp
            for one in self._arrived[:later]
            if one.left == first.left and one.key is not None and one.value is not None
        ]
        in_time = self._arrived[later].timestamp + join.grace >= self._newest[later]
        return in_time and first.timestamp > max(side) - kept

    def _done(self, number: int, now: int) -> bool:
        """Whether a record's window and the grace are over."""
        one = self._arrived[number]
        return one.timestamp + self._reach[one.left] + self._join.grace < now

