"""Committed outputs as they come: by the input that they come of, how late, and for how long none came."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from compat_tests.harness.world import World
from compat_tests.oracles.rows import Origin, Place, Row, origin_of
from milestones.testing import TopicTail

PROMPT_S = 4.0
"""What 99 of 100 outputs that have nothing to do with what befalls another task take at most, on a busy machine. A calm
one makes a fourth of it of a commit that is tried again; a task that waits for another one's end waits for a multiple
of it."""


class Arrivals:
    """As a reader of committed outputs sees them, so look often."""

    def __init__(self, tail: TopicTail, seen: int = 0) -> None:
        """`seen`: so many rows of the tail aren't told of."""
        self._tail, self._seen = tail, seen

    def new(self) -> list[Origin]:
        """Of those that have come since the last look."""
        self._tail.poll()
        origins = [origin_of(row) for row in self._tail.rows[self._seen :]]
        self._seen = len(self._tail.rows)
        assert None not in origins
        return [origin for origin in origins if origin is not None]


class Pauses:
    """For how long nothing went on while input did, by input partition; look often. `moved`: where something went on
    since it was asked last."""

    def __init__(self, moved: Callable[[], Iterable[Place]]) -> None:
        self._moved = moved
        self._last: dict[Place, float] = {}
        self.longest: dict[Place, float] = {}

    def look(self) -> None:
        places = set(self._moved())
        now = time.monotonic()
        for place in places:
            self._note(place, now)
            self._last[place] = now

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


class Gaps(Pauses):
    """For how long nothing came out."""

    def __init__(self, tail: TopicTail) -> None:
        arrivals = Arrivals(tail)
        super().__init__(lambda: [origin.place for origin in arrivals.new()])


class CommitGaps(Pauses):
    """For how long nothing was committed."""

    def __init__(self, world: World) -> None:
        super().__init__(self._new)
        self._world = world
        self._committed: Mapping[Place, int] = {}

    def _new(self) -> Iterable[Place]:
        before, self._committed = self._committed, self._world.committed()
        return [place for place, offset in self._committed.items() if offset != before.get(place)]


class Latencies:
    """How long each input takes, from before it was sent to the last of its outputs; look often. What has no output yet
    has taken until now."""

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


class Rates:
    """How many outputs came per second, within times; look often."""

    def __init__(self, tail: TopicTail) -> None:
        self._tail = tail
        self._seen = list[tuple[float, int]]()

    def look(self) -> int:
        """How many came so far."""
        count = self._tail.poll()
        self._seen.append((time.monotonic(), count))
        return count

    def between(self, begin: float, end: float) -> float:
        """Per second, from the first look in this time to the last one; of `time.monotonic`."""
        inside = [(at, count) for at, count in self._seen if begin <= at <= end]
        (first, before), (last, after) = inside[0], inside[-1]
        return (after - before) / (last - first)


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


def slowest(
    world: World, tail: TopicTail, places: Collection[Place], until: Callable[[], object], what: str, *,
    keys: int, outputs: int = 2,
) -> float:  # fmt: skip
    """Feed until something has happened; what 99 of 100 outputs of these partitions took at most. `outputs`: of each
    input."""
    load = Load(world, tail, keys=keys, outputs=outputs)

    def happened() -> object:
        load()
        return until()

    world.wait(happened, what)
    took = load.latencies.of(places)
    print(f"{what}: {len(took)} outputs of other tasks took {percentile(took, 50):.2f} s, {percentile(took, 99):.2f} s "
          f"(p99), at most {took[-1]:.2f} s")  # fmt: skip
    return percentile(took, 99)


def are_prompt(
    world: World, tail: TopicTail, places: Collection[Place], until: Callable[[], object], what: str, *, keys: int
) -> None:
    """Feed until something has happened; the outputs of these partitions, two of each input, come in time."""
    assert slowest(world, tail, places, until, what, keys=keys) < PROMPT_S
