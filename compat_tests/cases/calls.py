"""Inputs whose processing takes its time or fails, as `apps/calls.py` reads it out of their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from compat_tests.apps.calls import BEGINS, ENDS
from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.harness.instance import Instance
from compat_tests.harness.world import World
from compat_tests.oracles.placement import partition_of
from compat_tests.oracles.rows import Place
from milestones.testing import NotYet


def threaded(world: World) -> bool:
    """Whether user code runs on processing threads; else it holds up the stream thread."""
    return world.has("processing_threads")


@dataclass(frozen=True)
class Call:
    """An input with a call in it. `end`: the file that lets it return, or succeed."""

    place: Place
    key: bytes
    value: str
    end: Path

    @property
    def sent(self) -> Sent:
        return Sent(self.key, self.value.encode(), FIRST_TIMESTAMP)

    def begins(self, app: Instance) -> None:
        """Wait until it is being made."""
        app.says(f"{BEGINS}{self.value}")

    def ends(self, app: Instance) -> None:
        """Wait until it has returned."""
        app.says(f"{ENDS}{self.value}")

    def has_ended(self, app: Instance) -> bool:
        return f"{ENDS}{self.value}" in app.log()

    def release(self) -> None:
        """From now on it returns, or succeeds."""
        self.end.touch()


@dataclass(frozen=True)
class Noted:
    """Inputs whose calls leave a note outside of Kafka: what a service saw that user code has called."""

    world: World
    file: Path

    @classmethod
    def of(cls, world: World) -> Noted:
        return cls(world, _file(world))

    def records(self, count: int, keys: int) -> list[Sent]:
        """Records whose calls are noted, each under a name of its own."""
        first = len(self.world.feeds["in"].rows)
        return self.world.records(count, keys, lambda number: f"note {self.file} r{first + number}")

    def send(self, count: int = 40, keys: int = 50) -> None:
        self.world.feeds["in"].send(self.records(count, keys))

    def until(self, reached: Callable[[], object], what: str) -> None:
        """Feed small batches until that holds."""

        def fed() -> object:
            seen = reached()
            if not seen or isinstance(seen, NotYet):
                self.send()
            return seen

        self.world.wait(fed, what)

    def calls(self) -> list[tuple[str, int]]:
        """All that were made: the record's name, and when, by the wall clock in ms."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [(name, int(at)) for name, at in (line.split() for line in lines)]

    def has_made(self, count: int) -> object:
        """A condition: so many were made, at least."""
        found = len(self.calls())
        return found >= count or NotYet(f"{found} of {count} calls")

    def times(self) -> Counter[str]:
        """How often each record's was made."""
        return Counter(name for name, _ in self.calls())

    def again(self) -> dict[str, int]:
        """Those that were made more than once."""
        return {name: times for name, times in self.times().items() if times > 1}


def taking(world: World, partition: int, ms: int) -> Call:
    """One that takes so long, the first time that it is made."""
    return _call(world, partition, f"take {ms} {_file(world)}", _file(world))


def waiting(world: World, partition: int) -> Call:
    """One that, the first time that it is made, runs until it is released."""
    end = _file(world)
    return _call(world, partition, f"wait {end} {_file(world)}", end)


def failing(world: World, partition: int, text: str) -> Call:
    """One that fails with `text`, one word, until it is released."""
    if len(text.split()) != 1:
        raise ValueError(f"{text!r} isn't one word: the record would just be processed")
    end = _file(world)
    return _call(world, partition, f"fail {text} {end}", end)


def _file(world: World) -> Path:
    return world.directory / f"call-{world.rng.getrandbits(64):016x}"


def _call(world: World, partition: int, value: str, end: Path) -> Call:
    topic = world.feeds["in"].topic
    partitions = world.cluster.topics()[topic]
    keys = (b"k%d" % number for number in count())
    key = next(key for key in keys if partition_of(key, partitions) == partition)
    return Call(Place(topic, partition), key, value, end)
