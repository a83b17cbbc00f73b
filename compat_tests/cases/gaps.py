"""For how long nothing came out, while input went on."""

from __future__ import annotations

import time
from collections.abc import Iterable

from compat_tests.harness.cluster import Tail
from compat_tests.oracles.rows import Place, origin_of


class Gaps:
    """By input partition; as a reader of committed outputs sees it, so look often."""

    def __init__(self, tail: Tail) -> None:
        self._tail, self._seen = tail, 0
        self._last: dict[Place, float] = {}
        self.longest: dict[Place, float] = {}

    def look(self) -> None:
        self._tail.poll()
        now = time.monotonic()
        for row in self._tail.rows[self._seen :]:
            origin = origin_of(row)
            assert origin is not None
            self._note(origin.place, now)
            self._last[origin.place] = now
        self._seen = len(self._tail.rows)

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
