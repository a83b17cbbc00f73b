"""How long inputs take to become committed outputs, as a reader of these sees it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from compat_tests.cases.arrivals import Arrivals
from compat_tests.harness.world import World
from compat_tests.oracles.rows import Origin, Place, Row
from milestones.testing import TopicTail


class Latencies:
    """By input, from before it was sent to the last of its outputs; look often. What has no output yet has taken until
    now."""

    def __init__(self, tail: TopicTail, outputs: int = 1) -> None:
        """`outputs`: of each input."""
        self._arrivals, self._outputs = Arrivals(tail, seen=tail.poll()), outputs
        self._sent: dict[Origin, float] = {}
        self._took: dict[Origin, float] = {}

    def sent(self, rows: Iterable[Row], at: float) -> None:
        """These inputs were sent at this time, of `time.monotonic`."""
        for row in rows:
            self._sent[Origin(row.topic, row.partition, row.offset)] = at

    def look(self) -> None:
        new = self._arrivals.new()
        now = time.monotonic()
        for origin in new:
            first = origin._replace(ordinal=0)
            if origin.ordinal == self._outputs - 1 and first in self._sent:
                self._took.setdefault(first, now - self._sent[first])

    def of(self, places: Collection[Place]) -> list[float]:
        """Of the inputs of these partitions, in seconds, ascending."""
        now = time.monotonic()
        return sorted(self._took.get(origin, now - at) for origin, at in self._sent.items() if origin.place in places)


class Load:
    """A little input for all partitions, again and again, and a look at what comes out."""

    def __init__(self, world: World, tail: TopicTail, *, keys: int, outputs: int = 1) -> None:
        self._world, self._keys = world, keys
        self.latencies = Latencies(tail, outputs)

    def __call__(self) -> None:
        began = time.monotonic()
        rows = self._world.feeds["in"].send(self._world.records(20, self._keys))
        self.latencies.sent(rows, began)
        self.latencies.look()


def percentile(ascending: list[float], percent: float) -> float:
    """The number that so many per cent of them aren't above."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * percent / 100))]
