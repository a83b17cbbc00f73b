"""`RestoreShares` decides which sub-topologies' active tasks restore now, in proportion to the sub-topologies' weights.

    records read / weight:    heavy |------->           the light sub-topology waits once it is a quantum ahead of a
                              light |---------------->  heavier one, until the heavier one is as far

*Guarantees*: each sub-topology that has much to restore gets records in proportion to its weight. The difference is one
quantum at most. A sub-topology never waits for one of the same or a smaller weight, nor for one with little left to
restore. A sub-topology never waits longer than `LONGEST_MS` at a time. If all weights are equal, all sub-topologies
read.
*Assumes*: `took` is called with all records of active tasks that were taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milestones.restoration.changelog_reader import MUCH

QUANTUM: Final = 50_000
"""A sub-topology waits when it is ahead by this number of records, divided by the weight. The number is large for the
same reason as in `restore_quota`: the end of a turn throws prefetched records away."""

LONGEST_MS: Final = 10_000
"""The longest wait of a sub-topology at a time, even if the heavier ones read nothing: their brokers may not answer."""


class RestoreShares:
    """*Owns*: for each sub-topology, the records read, divided by its weight; the sub-topologies that wait."""

    def __init__(self, weights: Mapping[int, int], quantum: int = QUANTUM) -> None:
        """`weights`: `task_priorities`."""
        self._weights, self._quantum = weights, quantum
        self._far: dict[int, float] = {}
        self._back: dict[int, int] = {}

    def took(self, subtopology: int, records: int) -> None:
        """Note that this number of records was taken for active tasks of the sub-topology."""
        if subtopology in self._far:
            self._far[subtopology] += records / self._weight(subtopology)

    def _weight(self, subtopology: int) -> int:
        return self._weights.get(subtopology, 1)

    def stand_back(self, now_ms: int, left: Mapping[int, int]) -> frozenset[int]:
        """Return the sub-topologies whose active tasks don't read now. `left`: the records that are left to restore,
        for each sub-topology whose tasks could read."""
        much = {number for number, records in left.items() if records >= MUCH}
        begun = min((far for number, far in self._far.items() if number in much), default=0.0)
        self._far = {number: self._far.get(number, begun) for number in much}
        self._back = {number: since_ms for number, since_ms in self._back.items() if number in much}
        for number in sorted(much, key=self._weight, reverse=True):
            self._look(number, now_ms)
        return frozenset(self._back)

    def _look(self, number: int, now_ms: int) -> None:
        heavier = [far for other, far in self._far.items() if self._weight(other) > self._weight(number)]
        ahead = self._far[number] - min(heavier, default=self._far[number])
        since_ms = self._back.get(number)
        if since_ms is None and ahead >= self._quantum:
            self._back[number] = now_ms
        elif since_ms is not None and ahead > 0 and now_ms - since_ms >= LONGEST_MS:
            self._far[number] -= ahead
            del self._back[number]
        elif since_ms is not None and ahead <= 0:
            del self._back[number]
