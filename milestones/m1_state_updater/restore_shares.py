"""Which sub-topologies' active tasks restore now: those of greater weight first, in proportion.

    far: records by weight    heavy |------->           light stands back once it is a quantum farther than a heavier
                              light |---------------->  one, until that one is as far

*Guarantees*: of sub-topologies that have much to restore each gets records in proportion to its weight, up to a
quantum. None stands back for one that is as light, or that has little left, and none for longer than `LONGEST_MS` in
one go. Equal weights: all read.
*Assumes*: told of all records of active tasks that were taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milestones.restoration.changelog_reader import MUCH

QUANTUM: Final = 50_000
"""Records by weight, as in `restore_quota`: a turn's end throws away what was prefetched."""

LONGEST_MS: Final = 10_000
"""How long one stands back in one go, whatever the heavier ones get: their brokers may be away."""


class RestoreShares:
    """*Owns*: how far each sub-topology is, and which of them stand back."""

    def __init__(self, weights: Mapping[int, int], quantum: int = QUANTUM) -> None:
        """`weights`: `task_priorities`."""
        self._weights, self._quantum = weights, quantum
        self._far: dict[int, float] = {}
        self._back: dict[int, int] = {}

    def took(self, subtopology: int, records: int) -> None:
        """Note that this number of records of its active tasks was taken."""
        if subtopology in self._far:
            self._far[subtopology] += records / self._weight(subtopology)

    def _weight(self, subtopology: int) -> int:
        return self._weights.get(subtopology, 1)

    def stand_back(self, now_ms: int, left: Mapping[int, int]) -> frozenset[int]:
        """Those whose active tasks don't read now. `left`: records to restore, by sub-topology, of those that could
        read."""
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
