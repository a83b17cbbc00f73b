"""Fifty tasks of one state manager, whose commits wait, beside what Kafka has of them: `ManyTasks`, by seed.

    a step: commits, or what befalls a task or all of them --> a store is its changelog up to its offset

*Guarantees*: the same seed is the same lives. What is wrong is an `AssertionError` that names the task.
*Assumes*: one thread; engines that link files.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from milestones.common.errors import StateBusyError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engine import Batch
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.common.state.engines.sst import entries
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.spec import StoreSpec
from milestones.common.state.storage import CommitMade
from milestones.common.state.write_behind import WaitingCommits, WriteBehindStorage
from milestones.common.testing import StepClock
from milestones.m6_state_manager.conversion.all_tasks import folder_state_manager
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending.database_folder import DATABASE
from milestones.m6_state_manager.mending.mender import Mending
from milestones.m6_state_manager.range_row import RangeRow
from milestones.m6_state_manager.snapshots.jobs import CheckpointJob, PartitionJob
from milestones.m6_state_manager.snapshots.maker import _with
from milestones.m6_state_manager.snapshots.moments import Moments
from milestones.m6_state_manager.snapshots.process import Maker
from milestones.m6_state_manager.state_thread import CompactionThread
from tests.milestones.m6_state_manager.states import SMALL
from tests.milestones.m6_state_manager.task_lives import Content, overlaid

SPECS: Final = {
    0: [StoreSpec("a", "timestamped-key-value"), StoreSpec("ab"), StoreSpec("a-b"), StoreSpec("a#", persistent=False)],
    1: [StoreSpec("a"), StoreSpec("unlogged", logged=False)],
}
PARTITIONS: Final = [*range(30), 254, 255, 256, 257, 65534, 65535, 65536, 2**24 - 1, 2**24, 2**31 - 2, 2**31 - 1]
TASKS: Final = [TaskId(0, number) for number in PARTITIONS] + [TaskId(1, number) for number in PARTITIONS[-10:]]
KEYS: Final = [
    b"", b"\x00", b"\x00\x00\x00\x01", b"\x00\x00\x01\x00", b"a", b"ab", b"abc", b"\xff", b"\xff" * 4, b"\xff" * 5,
    *(b"key-%d" % number for number in range(15)),
]  # fmt: skip
Bound = bytes | None


class OneTask:
    """A task. *Owns*: its stores while they are open (`storage`). `logs`: by store with a changelog what that has, as
    the content at each offset; `unlogged`: the content of the others; `refused`: the write that is to be made again."""

    def __init__(self, id: TaskId, rng: random.Random, happened: Counter[str]) -> None:
        self.id, self.specs, self._rng, self._happened = id, SPECS[id.subtopology], rng, happened
        self.logs: dict[str, list[tuple[int, Content]]] = {spec.name: [(0, {})] for spec in self.specs if spec.logged}
        self.unlogged: dict[str, Content] = {spec.name: {} for spec in self.specs if not spec.logged}
        self.commits: dict[int, dict[str, Content]] = {}
        self.storage: Any = None
        self.refused: Callable[[], object] | None = None

    def content(self, store: str) -> Content:
        return self.unlogged[store] if store in self.unlogged else self.logs[store][-1][1]

    def at(self, store: str, offset: int | None) -> Content:
        return max((each for each in self.logs[store] if each[0] <= (offset or 0)), key=lambda each: each[0])[1]

    def _logged(self, store: str, batch: Batch) -> int:
        end = self.logs[store][-1][0] + len(batch) + 1
        self.logs[store].append((end, overlaid(self.content(store), batch)))
        return end

    def _batch(self) -> Batch:
        values = [None, b"", b"v", b"%d" % self._rng.randrange(10**9)]
        return {self._rng.choice(KEYS): self._rng.choice(values) for _ in range(self._rng.randint(1, 6))}

    def commit(self) -> None:
        stores = [spec.name for spec in self.specs if self._rng.random() < 0.6]
        batches = {store: self._batch() for store in stores}
        offsets = {store: self._logged(store, batches[store]) for store in stores if store in self.logs}
        self.unlogged |= {name: overlaid(self.unlogged[name], batches[name]) for name in self.unlogged.keys() & batches}
        number = len(self.commits) + 1
        self.commits[number] = {store: log[-1][1] for store, log in self.logs.items()}
        made = CommitMade(number, {TopicPartition("in", self.id.partition): number}, {})
        self.try_to(lambda: (self.storage.note(made), self.storage.apply(batches, offsets)))

    def try_to(self, write: Callable[[], object]) -> None:
        self.refused = None
        try:
            write()
        except StateBusyError:
            self.refused = write
            self._happened["writes refused"] += 1

    def elsewhere(self) -> None:
        """Another instance has the task, and writes."""
        for store in self.logs:
            for _ in range(self._rng.randint(0, 2)):
                self._logged(store, self._batch())

    def restore(self) -> None:
        for store, log in self.logs.items():
            while (at := self.storage.offsets()[store] or 0) < log[-1][0]:
                end, then = self._rng.choice([each for each in log if each[0] > at])
                now = self.at(store, self.storage.offsets()[store])
                changed = {key for key in now.keys() | then.keys() if now.get(key) != then.get(key)}
                self.storage.apply({store: {key: then.get(key) for key in changed}}, {store: end})
        self.judge()

    def judge(self) -> None:
        """Each way to read a store gives what the changelog has up to its offset."""
        assert self.refused is None
        for spec in self.specs:
            store, namespace = spec.name, self.storage.namespace(spec.name)
            offset = self.storage.offsets()[store]
            content = self.unlogged[store] if store in self.unlogged else self.at(store, offset)
            start, end = self._rng.choice([None, *KEYS]), self._rng.choice([None, *KEYS])
            within = [each for each in sorted(content.items()) if _within(each[0], start, end)]
            which = f"store {store} of task {self.id} at {offset}"
            assert dict(namespace.scan(None, None)) == content, which
            assert [*namespace.scan(start, end)] == within, which
            assert [*namespace.scan(start, end, reverse=True)] == within[::-1], which
            if start is not None and end is not None:
                assert namespace.scan_bounded(start, end, 3) == namespace.reader()(start, end, 3) == within[:3], which
            assert [namespace.get(key) for key in KEYS] == [content.get(key) for key in KEYS], which

    def close(self) -> None:
        self.storage.close()
        self.storage = None


def _within(key: bytes, start: Bound, end: Bound) -> bool:
    return (start or b"") <= key and (end is None or key < end)


class ManyTasks:
    """The instance. `happened`: how often what did."""

    def __init__(self, seed: int, base: Path) -> None:
        self._rng, self._base, self._life = random.Random(seed), base, 0
        self.clock, self.happened = StepClock(1_000_000), Counter[str]()
        self._engines = RocksDictEngines(SMALL)
        base.mkdir(exist_ok=True)
        self._repository = SnapshotRepository(f"file://{base}/remote", "words")
        self.tasks = [OneTask(id, self._rng, self.happened) for id in TASKS]
        self._most = self._rng.choice([2_000, 20_000, 1 << 20])
        self._begin(StateDirectory(base / "0", "words", self.clock))
        for task in self.tasks:
            self._open(task)

    def _begin(self, directory: StateDirectory, manager: Callable[..., Any] = RangeStateManager) -> None:
        self._directory, self.manager = directory, manager(directory, self._engines, "m6")
        self._waiting = WaitingCommits(self._most, self._rng.choice([100, 5_000]))

    def _open(self, task: OneTask) -> None:
        task.storage = self._waiting.of(self.manager.open(task.id, task.specs), task.specs, self.clock)
        task.restore()

    # -- steps

    def run(self, steps: int) -> None:
        calls = {self._commits: 60, self._judge: 10, self._write_due: 5}
        calls |= dict.fromkeys((self._move, self._empty, self._snapshot, self._remove), 4)
        calls |= dict.fromkeys((self._mend, self._give_room_back), 2)
        calls |= dict.fromkeys((self._damage, self._begin_anew), 1)
        for _ in range(steps):
            (call,) = self._rng.choices(list(calls), list(calls.values()))
            if call not in (self._commits, self._judge, self._damage):
                self._mend()
            call()
            self.happened[call.__name__] += 1
            self.clock.advance(self._rng.choice([0, 1, 50]))
        self._mend()
        for task in self.tasks:
            task.judge()

    def close(self) -> None:
        for task in self.tasks:
            if task.storage is not None:
                task.close()
        self.manager.release()
        self._directory.close()

    def _any(self) -> OneTask:
        return self._rng.choice(self.tasks)

    def _commits(self) -> None:
        for _ in range(4):
            task = self._any()
            task.try_to(task.refused) if task.refused else task.commit()

    def _judge(self) -> None:
        task = self._any()
        if task.refused is None:
            task.judge()

    def _write_due(self) -> None:
        for task in self.tasks:
            due_ms = task.storage.write_due_ms()
            if due_ms is not None and due_ms <= self.clock.monotonic_ms():
                task.try_to(task.storage.write)

    def _move(self) -> None:
        """A task is another instance's for a while, and comes back, open as a standby's or closed meanwhile."""
        task = self._any()
        if self._rng.random() < 0.5:
            task.close()
            task.elsewhere()
            self._open(task)
        else:
            task.elsewhere()
            task.restore()

    def _empty(self) -> None:
        task = self._any()
        store = self._rng.choice(list(task.logs))
        task.storage.clear(store, self._rng.choice([None, "it is damaged"]))
        assert (dict(task.storage.namespace(store).scan(None, None)), task.storage.offsets()[store]) == ({}, None)
        self._begin_with_a_snapshot(task, store)
        task.restore()

    def _begin_with_a_snapshot(self, task: OneTask, store: str) -> None:
        newest = self._repository.newest(_changelog(task.id, store), store)
        if newest is None:
            return
        fetched = self._repository.fetch(newest, self._base)
        for _ in task.storage.ingest(store, fetched.files, newest.key_prefix):
            pass
        task.storage.apply({store: {}}, {store: newest.offset})
        fetched.remove()
        self.happened["stores begun with a snapshot"] += 1
        task.judge()

    def _remove(self) -> None:
        task = self._any()
        if not task.unlogged:
            task.close()
            self.manager.remove(task.id)
            self._open(task)

    def _damage(self) -> None:
        self._rng.choice(self.manager.databases()).damage("a test says so")

    def _mend(self) -> None:
        for database in self.manager.databases():
            if database.gate.reason:
                Mending(database, self._engines).run()
                database.replaced.let_go(0)
        for task in self.tasks:
            if task.refused is not None:
                task.try_to(task.refused)

    def _give_room_back(self) -> None:
        CompactionThread("compaction", self.manager.databases()).run()
        for database in self.manager.databases():
            database.remove_notes()

    def _begin_anew(self) -> None:
        """The process ends, or is killed: what waits is lost. An earlier stage may run before the next one."""
        killed = self._rng.random() < 0.5
        earlier = self._rng.random() < 0.3
        self._end(killed=killed)
        if earlier:
            self._begin(StateDirectory(self._directory.path.parent, "words", self.clock), folder_state_manager)
            for task in self._rng.sample(self.tasks, 5):
                self._open(task)
                task.commit()
            self._end(killed=not killed)
        self._begin(StateDirectory(self._directory.path.parent, "words", self.clock))
        for task in self.tasks:
            self._open(task)

    def _end(self, *, killed: bool) -> None:
        for task in self.tasks:
            if killed and isinstance(task.storage, WriteBehindStorage):
                task.storage._let_go()
        self.close()

    # -- snapshots

    def _snapshot(self) -> None:
        """Of a few stores, as of a moment after which tasks go on."""
        database = self._rng.choice(self.manager.databases())
        target = self._base / f"checkpoint-{self._life}"
        self._life += 1
        moments = Moments(self.manager.changed)
        taken, jobs = moments.checkpoint(database, target / DATABASE, lambda: self._jobs(database))
        self._commits()
        stores = tuple(_with(job, taken[job.place][1]) for job in jobs)
        now_ms = self.clock.wall_ms()
        job = CheckpointJob(target, database.number, "words", 1, now_ms, stores, f"file://{self._base}/remote")
        told: list[Any] = []
        if jobs:
            Maker(job, self._repository, self.clock).run(told.append)
        for result in told:
            of, changes = taken[result.task, result.store]
            if result.manifest is None:
                assert not result.wrong, result.why
                self.manager.changed.put_back(of, result.store, changes)
            else:
                self.manager.changed.published(of, result.store, changes, result.manifest)
                self._judge_snapshot(result.manifest, result.task)
        shutil.rmtree(target, ignore_errors=True)

    def _jobs(self, database: Any) -> list[PartitionJob]:
        found = [
            PartitionJob.of(
                storage.task, spec, _changelog(storage.task, spec.name), changelog_id=None, usable_until_ms=None,
                leads=self.manager.changed.range(*storage.task).leads,
            )
            for storage in self.manager.tasks(database.number)
            for spec in storage.persistent
            if spec.name in database.rows.get(storage.task.partition, RangeRow()).offsets
        ]  # fmt: skip
        return self._rng.sample(found, min(8, len(found)))

    def _judge_snapshot(self, manifest: Any, id: TaskId) -> None:
        """It has what the changelog has up to its offset, and, if it names a commit, what that commit left."""
        task = next(task for task in self.tasks if task.id == id)
        fetched = self._repository.fetch(manifest, self._base)
        content: Mapping[bytes, bytes] = dict(entries(fetched.files, manifest.key_prefix))
        fetched.remove()
        assert content == task.at(manifest.store, manifest.offset), f"{manifest.store} of {id} at {manifest.offset}"
        if manifest.commit_number is not None:
            assert content == task.commits[manifest.commit_number][manifest.store], f"{id}, {manifest.commit_number}"
        self.happened["bases" if manifest.base is None else "deltas"] += 1


def _changelog(task: TaskId, store: str) -> TopicPartition:
    return TopicPartition(f"words-{task.subtopology}-{store}-changelog", task.partition)
