"""For how long nothing came out, while input went on."""

from __future__ import annotations

import time
from collections.abc import Iterable

from compat_tests.cases.arrivals import Arrivals
from compat_tests.oracles.rows import Place
from milestones.testing import TopicTail


class Gaps:
    """By input partition; as a reader of committed outputs sees it, so look often."""

    def __init__(self, tail: TopicTail) -> None:
        self._arrivals = Arrivals(tail)
        self._last: dict[Place, float] = {}
        self.longest: dict[Place, float] = {}

    def look(self) -> None:
        new = self._arrivals.new()
        now = time.monotonic()
        for origin in new:
            self._note(origin.place, now)
            self._last[origin.place] = now

    def _note(self, place: Place, now: float) -> None:
        if place in self._last:
            self.longest[place] = max(self.longest.get(place, 0.0), now - self._last[place])

    def forget(self) -> None:
        """Count from here on."""
        self.look()
        self.longest.clear()
        self._last = dict.fromkeys(self._last, time.monotonic())

    def of(self, places: Iterable[Place]) -> float:
        """The longest one, that which still lasts included."""
        for place in self._last:
            self._note(place, time.monotonic())
        return max(self.longest[place] for place in places)
