"""Windows and sessions of many tasks in one database, each beside the same task in memory: `WindowedTasks`, by seed.

    a step: a put, a commit, or what befalls a task or the database --> both tasks read the same

*Guarantees*: the same seed is the same lives. What is wrong is an `AssertionError` that names the task and the read.
*Assumes*: one thread.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from milestones.common import serdes
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.testing import StepClock
from milestones.common.windowed import FOREVER, Windowed
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending.mender import Mending
from tests.common.task.harness import Harness, OpenedInMemory, forward, processing
from tests.milestones.m6_state_manager.states import SMALL

MINUTE: Final = 60_000
KEYS: Final = ["a", "ab", "b", "", "abc"]
Call = Callable[[Any], Any]


class TwoTasks:
    """One task twice: with its stores in a database, as `opens` opens them, and with its stores in memory."""

    def __init__(self, spec: StoreSpec, partition: int, opens: Callable[..., Any]) -> None:
        self._spec, self._partition, self._opens = spec, partition, opens
        self._memory = OpenedInMemory(TaskId(0, partition), [spec])
        self.begin()

    def begin(self) -> None:
        self._tasks = [
            Harness(processing(forward, [self._spec]), partition=self._partition, opens=opens, transactional_id="tx")
            for opens in (lambda *_: self._memory, self._opens)
        ]
        for task in self._tasks:
            task.start()

    def close(self) -> None:
        for task in self._tasks:
            task.task.close()

    def restart(self) -> None:
        self.close()
        self.begin()

    def commit(self) -> None:
        for task in self._tasks:
            task.commit()

    def roll_back(self) -> None:
        for task in self._tasks:
            task.task.roll_back()

    def same(self, call: Call, *about: object) -> None:
        """Call a method of both stores, and compare all that it gives."""
        in_memory, in_database = (_called(task, call) for task in self._tasks)
        assert in_database == in_memory, f"{about} of partition {self._partition}"


def _called(harness: Harness, call: Call) -> Any:
    def all_of_it() -> Any:
        found = call(harness.task.store("store"))
        return list(found) if isinstance(found, Iterator) else found

    harness.go_on()
    return harness.task.call(all_of_it)


class WindowedTasks:
    """The instance, and its stream time. `happened`: how often what did."""

    def __init__(self, seed: int, base: Path, tasks: int, kind: StoreKind, engine: str) -> None:
        self._rng, self.happened = random.Random(seed), Counter[str]()
        self._engines = open_engines(engine, SMALL)
        self._directory = StateDirectory(base, "windows", StepClock(1_000_000))
        self._manager = RangeStateManager(self._directory, self._engines, "m6")
        self._kind, duplicates = kind, kind == "window" and self._rng.random() < 0.4
        spec = StoreSpec(
            "store", kind, key_serde=serdes.STRING, value_serde=serdes.STRING, duplicates=duplicates,
            window_ms=0 if kind == "session" else 10, retention_ms=self._rng.choice([10, MINUTE, 3 * MINUTE]),
        )  # fmt: skip
        partitions = self._rng.sample(range(tasks + 10), tasks)
        self._tasks = [TwoTasks(spec, partition, self._manager.open) for partition in partitions]
        self._now_ms = 0

    def run(self, steps: int) -> None:
        calls: dict[Callable[[TwoTasks], None], float] = {
            self._put: 14, TwoTasks.commit: 4, TwoTasks.roll_back: 1, TwoTasks.restart: 1, self._mend: 0.2,
        }  # fmt: skip
        for _ in range(steps):
            much = 20 * MINUTE if self._rng.random() < 0.02 else self._rng.choice([0, 1, 500, 5_000, 20_000])
            self._now_ms += much
            self._start_ms = max(0, self._now_ms - self._rng.choice([0, 0, 0, 5, 30_000, 100_000, 400_000]))
            (call,) = self._rng.choices(list(calls), list(calls.values()))
            task = self._rng.choice(self._tasks)
            call(task)
            self.happened[call.__name__] += 1
            for each in (task, self._rng.choice(self._tasks)):
                for _ in range(self._rng.choice([1, 3, 6])):
                    self._reads(each)

    def close(self) -> None:
        for task in self._tasks:
            task.close()
        self._manager.release()
        self._directory.close()

    def _put(self, task: TwoTasks) -> None:
        key, start = self._rng.choice(KEYS), self._start_ms
        value = None if self._rng.random() < 0.2 else f"value {self._rng.randrange(10**6)}"
        if self._kind == "session":
            session = Windowed(key, start, start + self._rng.choice([0, 3, 1_000]))
            task.same(lambda store: store.put(session, value), "put", session)
        else:
            task.same(lambda store: store.put(key, value, start), "put", key, start)

    def _mend(self, _: TwoTasks) -> None:
        """The database is damaged, and made anew of its ranges."""
        for database in self._manager.databases():
            database.damage("a test says so")
            Mending(database, self._engines).run()
            database.replaced.let_go(0)

    def _reads(self, task: TwoTasks) -> None:
        key, start = self._rng.choice(KEYS), self._start_ms
        ends = start, self._now_ms, self._now_ms + 70_000, FOREVER - 1
        first, last = sorted((max(0, self._now_ms - self._rng.randrange(300_000)), self._rng.choice(ends)))
        if self._kind == "session":
            task.same(lambda store: store.find_sessions(key, first, last), "find_sessions", key, first, last)
            task.same(lambda store: store.find_sessions(key, max(0, start - 5), start + 5), "near", key, start)
            task.same(lambda store: store.fetch(key), "fetch", key)
            return
        task.same(lambda store: store.fetch(key, first, last), "fetch", key, first, last)
        task.same(lambda store: store.fetch(key, start), "fetch", key, start)
        if self._rng.random() < 0.2:
            task.same(lambda store: store.all(), "all")
            task.same(lambda store: store.backward_fetch(key, first, last), "backward_fetch", key, first, last)
