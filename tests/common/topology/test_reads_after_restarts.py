"""What is gone of a store stays gone: a processor that reads each kind of store before it writes, and a punctuation
that reads, find the same whether the task has moved or not."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from milestones import Processor, Record, StoreSpec, Topology, ValueAndTimestamp, serdes, stores
from milestones.common.windowed import FOREVER, Windowed
from tests.common.topology.restarting import RestartingDriver

TEXT = serdes.STRING
MINUTE = 60_000
KEPT: Mapping[str, int] = {"size": 1_000, "retention": MINUTE}


@dataclass(frozen=True)
class Kind:
    """A store, its reads for a key at a time, what a record puts, and the reads of a punctuation."""

    spec: StoreSpec
    read: Callable[[Any, str, int], object]
    put: Callable[[Any, str, str, int], object]
    all: Callable[[Any], object]


def everything(store: Any) -> object:
    return list(store.all())


def fetched(store: Any, key: str, time: int) -> object:
    ranges = [list(store.fetch(key, first, last)) for first, last in ((0, FOREVER - 1), (time - MINUTE, time))]
    return store.fetch(key, time), store.fetch(key, max(0, time - MINUTE)), ranges, everything(store)


def ranges_of(store: Any, key: str, time: int) -> object:
    return list(store.fetch(key, 0, FOREVER - 1)), list(store.fetch_all(0, time)), everything(store)


def timed(value: str, time: int) -> Any:
    return ValueAndTimestamp(value, time)


def windowed(spec: StoreSpec, value: Callable[[str, int], Any] = lambda value, _: value, read: Any = fetched) -> Kind:
    return Kind(spec, read, lambda store, key, text, time: store.put(key, value(text, time), time), everything)


def sessions(store: Any, *_: object) -> object:
    return [[*store.fetch("a")], [*store.fetch("b")], [*store.find_sessions_by_end(0, FOREVER - 1)]]


def with_ttl(store: Any, key: str, _: int) -> object:
    return store.get(key), everything(store)


def as_of(store: Any, key: str, time: int) -> object:
    back = [store.get(key, max(0, time - by)) for by in (0, 1_000, MINUTE, 2 * MINUTE)]
    return back, list(store.versions(key)), everything(store)


def put_session(store: Any, key: str, value: str, time: int) -> None:
    store.put(Windowed(key, max(0, time - 500), time), value)


KINDS: Mapping[str, Callable[[bool], Kind]] = {
    "window": lambda memory: windowed(stores.window("s", TEXT, TEXT, in_memory=memory, **KEPT)),
    "window of duplicates": lambda memory: windowed(
        stores.window("s", TEXT, TEXT, duplicates=True, in_memory=memory, **KEPT), read=ranges_of
    ),
    "timestamped window": lambda memory: windowed(
        stores.timestamped_window("s", TEXT, TEXT, in_memory=memory, **KEPT), timed
    ),
    "session": lambda memory: Kind(
        stores.session("s", TEXT, TEXT, retention=MINUTE, in_memory=memory), sessions, put_session, sessions
    ),
    "time to live": lambda memory: Kind(
        stores.key_value("s", TEXT, TEXT, ttl=MINUTE, in_memory=memory),
        with_ttl, lambda store, key, value, _: store.put(key, value), everything,
    ),
    "versioned": lambda memory: Kind(
        stores.versioned("s", TEXT, TEXT, history=MINUTE, in_memory=memory), as_of,
        lambda store, key, value, time: store.put(key, value, time), everything,
    ),
}  # fmt: skip


def reading(kind: Kind) -> Topology:
    """Every read of the store goes to `out`; what begins with "put" is put."""

    class Reads(Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            super().init(context)
            self.store: Any = context.get_state_store("s")
            context.schedule(10_000, "stream-time", self.punctuated)

        def punctuated(self, time: int) -> None:
            self.context.forward(Record("punctuated", repr(kind.all(self.store)), time))

        def process(self, record: Record[str, str]) -> None:
            found = kind.read(self.store, record.key, record.timestamp)
            self.context.forward(record.with_value(repr(found)))
            if record.value.startswith("put"):
                kind.put(self.store, record.key, record.value, record.timestamp)

    topology = Topology().add_source("in", "in", key=TEXT, value=TEXT).add_processor("reads", Reads, "in")
    return topology.add_state_store(kind.spec, "reads").add_sink("out", "out", "reads", key=TEXT, value=TEXT)


def records(seed: int) -> list[tuple[str, str, int]]:
    """Mostly in the order of time; some far ahead, some late; about half of them only read."""
    chance, now, made = random.Random(seed), 10 * MINUTE, []
    for number in range(25):
        now += chance.choice([0, 1_000, 5_000, 20_000, 50_000])
        time = now - chance.choice([0, 0, 0, 1_000, 30_000, 59_000, 90_000])
        made.append((chance.choice("ab"), chance.choice(["put", "read"]) + str(number), time))
    return made


def found(kind: Kind, seed: int, *, restarts: bool) -> list[tuple[Any, Any, int]]:
    with RestartingDriver(reading(kind)) as driver:
        for key, value, time in records(seed):
            if restarts:
                driver.restart()
            driver.pipe("in", key.encode(), value.encode(), time)
        return [(one.key, one.value, one.timestamp) for one in driver.produced()["out"]]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("in_memory", [False, True], ids=["on disk", "in memory"])
@pytest.mark.parametrize("name", KINDS)
def test_what_a_read_finds_is_the_same_after_a_restart_before_each_record(
    name: str, in_memory: bool, seed: int
) -> None:
    kind = KINDS[name](in_memory)
    assert found(kind, seed, restarts=True) == found(kind, seed, restarts=False)
