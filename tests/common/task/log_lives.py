"""A task on a disk of its own, and what Kafka has of it: its life for a comparison of two ways to log.

*Guarantees*: a changelog has an offset for each record that was sent, aborted ones and transactions' markers too.
*Assumes*: one sub-topology, one thread. What was fed and isn't committed is lost with a roll-back.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from milestones.common.records import OffsetAndMetadata, Output, TaskId, TopicPartition, output_of
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engine import Namespace
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.storage import TaskStorage
from milestones.common.task.standby import StandbyTask
from milestones.common.task.task import Task, TaskSettings
from milestones.common.testing import StepClock
from milestones.common.topology import Topology
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import message

TASK = TaskId(0, 0)

Read = Callable[[StoreSpec, Any, Namespace], Any]
"""What is seen of a store: given its spec, the store of user code, and what lies in the engine."""


class Life:
    """`at_commit`: its stores log at a commit. `sent`: by store, the changelog records since the last commit."""

    def __init__(self, topology: Topology, home: Path, read: Read, *, at_commit: bool, exactly_once: bool) -> None:
        (self.sub,) = topology.resolve("app")
        self.stores = {topic: store for store, topic in self.sub.changelogs.items()}
        self.exactly_once = exactly_once
        self._home, self._read = home, read
        self._settings = TaskSettings(
            application_id="app", clock=StepClock(1_000_000), partitions_of=lambda _: 1, max_task_idle_ms=-1,
            processing_handler=LogAndContinue(), transactional_id="app-1" if exactly_once else "",
            logs_at_commit=at_commit,
        )  # fmt: skip
        self._partitions = [TopicPartition(topic, 0) for topic in self.sub.source_topics]
        self._positions = dict.fromkeys(self._partitions, 0)
        self._metadata: dict[TopicPartition, str] = {}
        self._fed = Counter[TopicPartition]()
        self.changelogs: dict[str, list[Output | None]] = {store: [] for store in self.sub.changelogs}
        self.sent: defaultdict[str, list[Output]] = defaultdict(list)
        self._start()

    # -- a disk

    def _opened(self, disk: str) -> tuple[LocalStateManager, TaskStorage]:
        directory = StateDirectory(self._home / disk, "app", self._settings.clock)
        manager = LocalStateManager(directory, open_engines("rocksdict"), "test")
        return manager, manager.open(TASK, self.sub.stores)

    def _restore(self, task: Task | StandbyTask, batch: int, until: float = 1.0) -> None:
        """Each changelog up to a share of it."""
        for store, records in self.changelogs.items():
            end = int(until * len(records))
            at = task.changelog_offsets()[store] or 0
            while at < end:
                following = min(at + batch, end)
                task.restore(store, self._messages(records[at:following]), following)
                at = following

    @staticmethod
    def _messages(records: list[Output | None]) -> list[Message]:
        return [
            message(0, each.key, each.value, each.timestamp, each.topic, each.headers)
            for each in records
            if each is not None
        ]

    def seen(self) -> dict[str, Any]:
        """What user code sees of its stores, of a user's call."""
        return self._seen(self.task, self._storage)

    def _seen(self, task: Task, storage: TaskStorage) -> dict[str, Any]:
        return {
            spec.name: task.call(partial(self._read, spec, task.store(spec.name), storage.namespace(spec.name)))
            for spec in self.sub.stores
        }

    # -- beginnings and ends

    def _start(self, disk: str = "disk", batch: int = 100) -> None:
        self._manager, self._storage = self._opened(disk)
        self.task = self._opened_task(self._storage)
        self._restore(self.task, batch)
        self._begin()

    def _opened_task(self, storage: TaskStorage) -> Task:
        task = Task(TASK, self.sub, self._partitions, self._settings, lambda: storage)
        task.open()
        task.know(self._committed())
        return task

    def _committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {at: OffsetAndMetadata(self._positions[at], text) for at, text in self._metadata.items()}

    def _standby(self, storage: TaskStorage) -> StandbyTask:
        standby = StandbyTask(TASK, self.sub, lambda: storage)
        standby.open()
        standby.know(self._committed())
        return standby

    def _begin(self) -> None:
        self.task.start(self._positions, self._metadata)
        self._fed = Counter(self._positions)

    def close(self) -> None:
        self.task.close()
        self._manager.release()

    def restart(self, batch: int, *, wiped: bool) -> None:
        """`wiped`: on an empty disk, by a standby that has come half-way, and that the task takes over from."""
        self.close()
        self.sent.clear()
        if not wiped:
            self._start(batch=batch)
            return
        shutil.rmtree(self._home / "disk")
        self._manager, self._storage = self._opened("disk")
        standby = self._standby(self._storage)
        self._restore(standby, batch, 0.5)
        self.task = self._opened_task(standby.recycle())
        self._restore(self.task, batch)
        self._begin()

    def followed(self, batch: int) -> dict[str, Any]:
        """What is seen by the task that takes over from a standby which has followed the changelogs to their ends."""
        manager, storage = self._opened("standby")
        standby = self._standby(storage)
        self._restore(standby, batch)
        task = self._opened_task(standby.recycle())
        task.start(self._positions, self._metadata)
        found = self._seen(task, storage)
        task.close()
        manager.release()
        shutil.rmtree(self._home / "standby")
        return found

    # -- records

    def process(self, topic: str, key: str, value: str | None, timestamp: int, headers: Any) -> list[Output]:
        """What it sends to other topics than changelogs."""
        at = TopicPartition(topic, 0)
        data = None if value is None else value.encode()
        self.task.input.add(at, [message(self._fed[at], key.encode(), data, timestamp, topic, headers)])
        self._fed[at] += 1
        self.task.process(10, self._settings.clock.monotonic_ms())
        return self._send([output_of(output) for output in self.task.take_outputs()])

    def _send(self, outputs: list[Output]) -> list[Output]:
        for output in outputs:
            if output.topic in self.stores:
                self.sent[self.stores[output.topic]].append(output)
                if not self.exactly_once:
                    self.changelogs[self.stores[output.topic]].append(output)
        return [output for output in outputs if output.topic not in self.stores]

    # -- commits

    def _freeze(self) -> Any:
        commit = self.task.freeze()
        outputs = [output_of(output) for output in commit.all_outputs()]
        assert outputs == [output_of(output) for output in commit.all_outputs()], "its log is another one each time"
        self._send(outputs)
        return commit

    def commit(self) -> dict[str, list[Output]]:
        """What the changelogs have got since the last one."""
        commit = self._freeze()
        if self.exactly_once:
            for store, records in self.sent.items():
                self.changelogs[store] += records
        ends = {store: len(self.changelogs[store]) for store, records in self.sent.items() if records}
        self.task.applied(commit, ends)
        if self.exactly_once:
            for store in ends:
                self.changelogs[store].append(None)
        self._positions, self._metadata = {**self._positions, **commit.offsets}, dict(commit.metadata)
        logged = {store: [*records] for store, records in self.sent.items()}
        self.sent.clear()
        return logged

    def thaw(self) -> None:
        """At least once, a commit fails: its records stay sent."""
        self.task.thaw(self._freeze())

    def roll_back(self) -> None:
        """In place, in the middle of a commit."""
        self._freeze()
        if self.exactly_once:
            for store, records in self.sent.items():
                self.changelogs[store] += [None] * len(records)
        self.task.roll_back()
        self.sent.clear()
        self._begin()
        self._send([output_of(output) for output in self.task.take_outputs()])
