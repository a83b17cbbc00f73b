"""Random calls of a store of any kind, by records of a task whose life is disturbed, each beside its model.

A plan is made with the model at hand: what each call must give is known before any task is there. The program of the
task makes the calls, changes every list that it has given or got, and keeps what was otherwise in `wrong`.

*Guarantees*: a seed decides a plan.
*Assumes*: as `tests.common.topology.test_lives_of_times`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.harness.feed import Sent
from milestones import Processor, Record, StoreSpec, Topology, serdes
from milestones.common.records import RecordMetadata
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engine import Engines
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.storage import TaskStorage
from milestones.common.state.stores.suppress_layout import Context
from milestones.common.testing import StepClock
from milestones.common.windowed import Windowed
from tests.common.task.storemodel.bounded_models import STEPS, Named, given
from tests.common.task.storemodel.kept_models import Expiring, KeyValues, Versions
from tests.common.task.storemodel.model_values import GRACE_MS, Model, Value, headers_for
from tests.common.task.storemodel.window_models import Segmented, Sessions
from tests.common.topology.test_lives_of_times import INPUT, NOW, Life

STORE = "s"
KEYS = ["", "a", "a\x00", "ab", "b", "\x7f" * 9]
WINDOWS = [
    "put", "put", "put", "put", "fetch_one", "fetch", "backward_fetch", "fetch_range", "backward_fetch_range",
    "fetch_all", "backward_fetch_all", "all", "backward_all", "approximate",
]  # fmt: skip
TIMED_WINDOWS = ["put_window", "replace_row", "replace_row", "fetch_raw", "get_raw", "rows_of", "backward_rows"]
SESSIONS = [
    "put", "put", "put", "put_raw", "remove", "fetch_session", "get_raw", "replace_near", "merge_near", "find_sessions",
    "backward_find_sessions", "find_sessions_of_range", "backward_find_sessions_of_range", "find_sessions_by_end",
    "fetch", "backward_fetch", "fetch_range", "backward_fetch_range", "closed", "approximate",
]  # fmt: skip
VERSIONS = [
    "put", "put", "put", "put_raw", "delete", "delete_raw", "get", "get_at", "get_as_of", "get_raw", "versions", "all",
    "approximate",
]  # fmt: skip
WRITES = [
    "put", "put", "put", "put_all", "range", "reverse_range", "all", "reverse_all", "prefix_scan", "by_serializer",
]  # fmt: skip
READS = ["get", "get", "put_if_absent", "delete"]
CALLS: dict[str, list[str]] = {
    "window": [*WINDOWS, "rows_joined", "closed"],
    "window of duplicates": [name for name in [*WINDOWS, "rows_joined", "put_one_encoded"] if name != "fetch_one"],
    "timestamped window": [*WINDOWS, *TIMED_WINDOWS, "closed"],
    "timestamped window with headers": [*WINDOWS, *TIMED_WINDOWS, "closed"],
    "session": SESSIONS,
    "session with headers": SESSIONS,
    "versioned": VERSIONS,
    "lru": [*WRITES, *READS, "approximate_num_entries"],
    "time to live": [*WRITES, *READS, "approximate"],
    "suppress": ["keep", "keep", "keep_row", "keep_row", "take_first", "first_times", "prior_of", "approximate"],
    "join buffer": ["wait", "wait", "wait", "take_due", "too_late", "approximate"],
}


class Draw:
    """Calls of one kind of store, by chance."""

    def __init__(self, name: str, seed: int) -> None:
        self._name, self._random, self._now = name, random.Random(seed), 1 + seed % 3 * 50_000

    def calls(self, model: Model, *, reads: bool) -> Iterator[tuple[Any, ...]]:
        """Each depends on what the model is by then."""
        names = [name for name in CALLS[self._name] if reads or name not in READS]
        for _ in range(self._random.randrange(7)):
            yield self._call(self._random.choice(names), model)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def time(self, model: Model) -> int:
        """Mostly forward, sometimes back, at times far ahead."""
        steps, back = ([0, 1, 5, 20, 60], [0, 0, 0, 30, 80])
        if isinstance(model, Segmented):
            steps, back = [0, 1, 5_000, 20_000, 90_000], [0, 0, 0, 30_000, 160_000, 400_000]
        elif isinstance(model, Versions):
            steps, back = [0, 1, 1, 5, 20, 150], [0, 0, 0, 3, 40, 99, 180]
        self._now += self._random.choice(steps)
        return max(1, self._now - self._random.choice(back))

    def _key(self) -> str:
        return self._random.choice(KEYS)

    def _two(self) -> tuple[str | None, str | None]:
        chance = self._random
        low, high = sorted(chance.choices(KEYS, k=2), key=str.encode)
        return chance.choice([low, low, None]), chance.choice([high, high, None])

    def _value(self) -> Value | None:
        return None if self.chance(0.2) else self._some()

    def _some(self) -> Value:
        number = self._random.randrange(9)
        return Value(number, self._random.randrange(1, 9), tuple(headers_for(number)))

    def _session(self, model: Model) -> Windowed[str]:
        end = self.time(model)
        if self.chance(0.4) and isinstance(model, Sessions) and model.rows:
            return Windowed(*self._random.choice(sorted(model.rows)))
        return Windowed(self._key(), max(0, end - self._random.choice([0, 10, 60_000])), end)

    def _context(self, time: int) -> Context:
        number = self._random.randrange(9)
        origin = RecordMetadata("in", 2, number) if number % 2 else None
        return Context(time, headers_for(number) or None, origin)

    def _call(self, name: str, model: Model) -> tuple[Any, ...]:
        if isinstance(model, Sessions):
            return self._of_sessions(name, model)
        if isinstance(model, Segmented):
            return self._of_windows(name, model)
        if isinstance(model, Versions):
            return self._of_versions(name, model)
        return (self._of_keys if isinstance(model, KeyValues) else self._of_operators)(name, model)

    def _of_keys(self, name: str, _: Model) -> tuple[Any, ...]:
        key = self._key
        match name:
            case "put":
                return name, key(), self._value()
            case "put_if_absent":
                return name, key(), self._some()
            case "put_all":
                return name, [(key(), self._value()) for _ in range(self._random.randrange(4))]
            case "range" | "reverse_range":
                return name, *self._two()
            case "prefix_scan" | "by_serializer":
                return name, self._random.choice(["", "a", "b", "c"])
            case "get" | "delete":
                return name, key()
            case _:
                return (name,)

    def _of_operators(self, name: str, model: Model) -> tuple[Any, ...]:
        key = self._key
        match name:
            case "prior_of":
                return name, key()
            case "keep" | "keep_row":
                return name, self._random.randrange(50), key(), self._value(), self._value(), self._context(7)
            case "wait":  # of keys none of which another one begins with: their places are in the order of the keys
                return name, self._random.choice("abc"), self._value(), self._context(self.time(model))
            case "take_due":
                return name, GRACE_MS
            case "too_late":
                return name, self.time(model), GRACE_MS
            case _:
                return (name,)

    def _of_windows(self, name: str, model: Model) -> tuple[Any, ...]:
        start = self.time(model)
        first = max(0, self._now - self._random.randrange(400_000))
        last = first + self._random.randrange(200_000)
        match name:
            case "put" | "put_window" | "replace_row" | "put_one_encoded":
                return name, self._key(), self._value(), start
            case "fetch_one":
                return "fetch", self._key(), start
            case "fetch_raw":
                return name, self._key(), start
            case "get_raw":
                return name, Windowed(self._key(), start, start)
            case "fetch" | "backward_fetch" | "rows_joined" | "rows_of" | "backward_rows":
                return name, self._key(), first, last
            case "fetch_range" | "backward_fetch_range":
                return name, *self._two(), first, last
            case "fetch_all" | "backward_fetch_all" | "closed":
                return name, first, last
            case _:
                return (name,)

    def _of_sessions(self, name: str, model: Sessions) -> tuple[Any, ...]:
        earliest = max(0, self._now - self._random.randrange(400_000))
        latest = earliest + self._random.randrange(100_000)
        match name:
            case "put" | "put_raw":
                return name, self._session(model), self._value()
            case "remove" | "get_raw":
                return name, self._session(model)
            case "fetch_session":
                return name, *self._session(model)
            case "replace_near":
                return name, self._key(), self._value(), earliest, latest
            case "merge_near":
                return name, self._key(), self._some(), earliest, latest
            case "find_sessions" | "backward_find_sessions":
                return name, self._key(), earliest, latest
            case "find_sessions_of_range" | "backward_find_sessions_of_range":
                return name, *self._two(), earliest, latest
            case "find_sessions_by_end" | "closed":
                return name, earliest, latest
            case "fetch" | "backward_fetch":
                return name, self._key()
            case "fetch_range" | "backward_fetch_range":
                return name, *self._two()
            case _:
                return (name,)

    def _of_versions(self, name: str, model: Versions) -> tuple[Any, ...]:
        time, first = self.time(model), max(0, model.observed - self._random.randrange(101))
        match name:
            case "put" | "put_raw":
                return name, self._key(), self._value(), time
            case "delete" | "delete_raw" | "get_as_of":
                return name, self._key(), time
            case "get_at":
                return "get", self._key(), time
            case "get" | "get_raw":
                return name, self._key()
            case "versions":
                return name, self._key(), first, first + self._random.randrange(100)
            case _:
                return (name,)


class Step(NamedTuple):
    """The calls of one record, and what each must give. `fails`: user code fails at the end of them."""

    time: int
    calls: list[tuple[Any, ...]]
    must: list[str]
    fails: bool


def planned(name: str, model: Model, seed: int, count: int, *, reads: bool) -> list[Step]:
    """The steps of so many records; without `reads`, none that count as uses."""
    draw, steps = Draw(name, seed), []
    for _ in range(count):
        before, fails = model.copy(), draw.chance(0.15)
        model.now = draw.time(model) if isinstance(model, Expiring) else 7
        calls, must = [], []
        for call in draw.calls(model, reads=reads):
            calls.append(call)
            must.append(repr(_of_model(model, call)))
        steps.append(Step(model.now, calls, must, fails))
        if fails:
            model = before
    return steps


def _of_model(model: Model, call: tuple[Any, ...]) -> Any:
    name, *arguments = call
    return getattr(model, "prefix_scan" if name == "by_serializer" else name)(*arguments)


def _of_store(store: Any, call: tuple[Any, ...]) -> Any:
    name, *arguments = call
    if name in STEPS:
        found = STEPS[name](store, *arguments)
    elif name == "by_serializer":
        found = store.prefix_scan(*arguments, serializer=str.encode)
    else:
        found = getattr(store, name)(*arguments)
    return list(found) if isinstance(found, Iterator) else found


def change(value: Any) -> None:
    """Change every list in it, as user code may."""
    if isinstance(value, list):
        value.append("changed by the user")
    if isinstance(value, list | tuple):
        for each in value:
            change(each)


class KindLife(Life):
    """A task with a store of any kind. `home`: where its stores lie, None: in memory."""

    def __init__(
        self, named: Named, steps: list[Step], *, engines: Engines, home: Path | None, cached: bool, **settings: bool
    ) -> None:
        self.steps, self.named, self.wrong = steps, named, list[str]()
        self._engines, self._home, self._disks = engines, home, list[tuple[TaskStorage, LocalStateManager]]()
        spec = StoreSpec(
            STORE, named.kind, key_serde=serdes.STRING, value_serde=serdes.JSON, persistent=home is not None,
            cached=cached, **named.more,
        )  # fmt: skip
        records = [Sent(b"", b"%d" % number, NOW if step.time < 1 else step.time) for number, step in enumerate(steps)]
        super().__init__(
            records, topology=self.calling(spec), record_caches=RecordCaches(10_000 if cached else 0), **settings
        )

    def calling(self, spec: StoreSpec) -> Topology:
        life = self

        class Calling(Processor[str, str, str, str]):
            def process(self, record: Record[str, str]) -> None:
                life.perform(self.context.get_state_store(STORE), int(record.value))

        topology = Topology().add_source("source", INPUT.topic, key=serdes.STRING, value=serdes.STRING)
        return topology.add_processor("worker", Calling, "source").add_state_store(spec, "worker")

    def perform(self, store: Any, number: int) -> None:
        """What user code does with a record."""
        step = self.steps[number]
        for call, must in zip(step.calls, step.must, strict=True):
            handed = given(self.named, call)
            found = _of_store(store, handed)
            if repr(found) != must:
                self.wrong.append(f"record {number}: {call} gave {found!r:.300}, should give {must:.300}")
            change(list(handed))
            change(found if isinstance(found, list | tuple) else [found])
        if step.fails:
            raise ValueError("user code fails")

    def empty(self) -> TaskStorage:
        if self._home is None:
            return super().empty()
        at = StateDirectory(self._home / f"disk-{len(self._disks)}", "app", StepClock(NOW))
        return self._opened(LocalStateManager(at, self._engines, "test"))

    def _opened(self, disk: LocalStateManager) -> TaskStorage:
        storage = disk.open(self.id, self.sub.stores)
        self._disks.append((storage, disk))
        return storage

    def die(self) -> None:
        """On a disk, the next one opens the databases again."""
        disk = next((disk for storage, disk in self._disks if storage is self.storage), None)
        if disk is None:
            super().die()
            return
        self.lose()
        self.task.close()
        self.begin(self._opened(disk))

    def close(self) -> None:
        """Close whatever is open."""
        for task in (self.task, self.standby):
            if task is not None:
                task.close()
        for disk in {id(disk): disk for _, disk in self._disks}.values():
            disk.release()
