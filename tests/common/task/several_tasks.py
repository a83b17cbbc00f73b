"""All tasks of a topology with several partitions, and what they see of Kafka: topics, commits, changelogs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from confluent_kafka import Message

from milestones.common.assignment.plan import plan_tasks
from milestones.common.records import Output, TaskId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.storage import TaskStorage
from milestones.common.task.task import Task, TaskSettings
from milestones.common.testing import StepClock
from milestones.common.topology import Topology
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import named

APPLICATION = "app"
Opener = Callable[[TaskId, Any], TaskStorage]


@contextmanager
def on_disk(directory: Path, engine: str) -> Iterator[Opener]:
    """Stores that outlive their task's close."""
    home = StateDirectory(directory, APPLICATION, StepClock(1_000_000))
    state = LocalStateManager(home, open_engines(engine), "test")
    try:
        yield lambda id, stores: state.open(id, stores)
    finally:
        state.release()


class SeveralTasks:
    """`counts`: partitions of the topics that exist. `exactly_once`: what a task sends is there once it is committed,
    else at once."""

    def __init__(
        self, topology: Topology, counts: Mapping[str, int], *, exactly_once: bool = True, cache: int = 0,
        opener: Opener = MemoryTaskStorage,
    ) -> None:
        self._subs = {sub.id: sub for sub in topology.resolve(APPLICATION)}
        self.plan = plan_tasks(self._subs.values(), counts)
        assert self.plan.error is None
        self._counts = {**counts, **self.plan.repartition_counts, **self.plan.changelog_counts}
        self._opener, self._exactly_once, self._cache = opener, exactly_once, RecordCaches(cache)
        self._clock = StepClock(1_000_000)
        self.logs: dict[TopicPartition, list[Message]] = defaultdict(list)
        self._committed: dict[TaskId, tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, str]]] = {
            id: (dict.fromkeys(inputs, 0), {}) for id, inputs in self.plan.tasks.items()
        }
        self._fed: dict[TaskId, dict[TopicPartition, int]] = {}
        self._known: dict[TaskId, dict[str, int]] = {}
        self.tasks = {id: self._started(id) for id in self.plan.tasks}

    def pipe(self, topic: str, key: bytes, value: bytes | None, timestamp: int, headers: Any = None) -> None:
        """A record of another application."""
        self._append(Output(topic, -1, key, value, timestamp, headers, ""))

    def process(self, id: TaskId, limit: int = 1_000) -> int:
        """Process at most so many of a task's records; what isn't sent with the commit is sent then."""
        task = self.tasks[id]
        for partition in task.partitions:
            fed = self._fed[id][partition]
            task.input.add(partition, self.logs[partition][fed:])
            self._fed[id][partition] = len(self.logs[partition])
            task.input.reached_end(partition, len(self.logs[partition]), self._clock.monotonic_ms())
        done = task.process(limit, self._clock.monotonic_ms())
        if not self._exactly_once:
            self._send(named(task.take_outputs()))
        return done

    def commit(self, id: TaskId) -> None:
        task = self.tasks[id]
        commit = task.freeze()
        self._send(named(commit.all_outputs()))
        self._committed[id] = commit.offsets, commit.metadata
        ends = {store: len(self.logs[TopicPartition(topic, id.partition)]) for store, topic in self._changelogs(id)}
        known = self._known.setdefault(id, {})
        # As of a producer: of the changelogs that got records since the last commit.
        task.applied(commit, {store: end for store, end in ends.items() if end != known.get(store, 0)})
        known.update(ends)

    def roll_back(self, id: TaskId) -> None:
        self.tasks[id].roll_back()
        self._start(id, self.tasks[id])

    def restart(self, id: TaskId) -> None:
        """As after a crash: what isn't committed is gone but for what was sent."""
        self.tasks[id].close()
        self.tasks[id] = self._started(id)

    def settle(self) -> None:
        """Process and commit until nothing is left."""
        moved = True
        while moved:
            moved = False
            for id, task in self.tasks.items():
                moved |= self.process(id) > 0
                if task.commit_needed() or task.unflushed:
                    self.commit(id)

    def rows(self, store: str) -> dict[bytes, bytes]:
        """The committed rows of a store of all tasks, as they are kept."""
        found: dict[bytes, bytes] = {}
        for id, task in self.tasks.items():
            if store in self._subs[id.subtopology].changelogs:
                found |= task._stores.storage.namespace(store).scan(None, None)
        return found

    def folded(self, topic: str) -> dict[bytes, bytes]:
        """The last value per key of a topic."""
        rows = {
            message.key(): message.value() for partition, log in self.logs.items() if partition.topic == topic
            for message in log
        }  # fmt: skip
        return {key: value for key, value in rows.items() if value is not None}

    def close(self) -> None:
        for task in self.tasks.values():
            task.close()

    # -- below

    def _started(self, id: TaskId) -> Task:
        sub = self._subs[id.subtopology]
        settings = TaskSettings(
            application_id=APPLICATION, clock=self._clock, partitions_of=self._counts.__getitem__,
            record_caches=self._cache, processing_handler=LogAndContinue(),
            transactional_id="tx" if self._exactly_once else "",
        )  # fmt: skip
        task = Task(id, sub, list(self.plan.tasks[id]), settings, partial(self._opener, id, sub.stores))
        task.open()
        offsets = task.changelog_offsets()
        for store, topic in self._changelogs(id):
            log = self.logs[TopicPartition(topic, id.partition)]
            task.restore(store, log[offsets[store] or 0 :], len(log))
        self._start(id, task)
        return task

    def _start(self, id: TaskId, task: Task) -> None:
        offsets, metadata = self._committed[id]
        task.start(offsets, metadata)
        self._fed[id] = dict(offsets)

    def _changelogs(self, id: TaskId) -> list[tuple[str, str]]:
        return list(self._subs[id.subtopology].changelogs.items())

    def _send(self, outputs: list[Output]) -> None:
        for output in outputs:
            self._append(output)

    def _append(self, output: Output) -> None:
        count = self._counts.get(output.topic, 1)
        number = crc32(output.key or b"") % count if output.partition < 0 else output.partition
        log = self.logs[TopicPartition(output.topic, number)]
        log.append(Message(
            topic=output.topic, partition=number, offset=len(log), key=output.key, value=output.value,
            headers=output.headers, timestamp=(1, output.timestamp),
        ))  # fmt: skip
