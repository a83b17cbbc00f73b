"""`RestartingDriver`: a topology whose tasks move to another process, between any two steps.

*Guarantees*: the stores of the other process have what their changelogs have, and nothing else is there of the former
one but the committed offsets with their metadata, and the schedule of its punctuations.
*Assumes*: every store is logged; no cache; what is piped goes to topics that the topology doesn't write.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from confluent_kafka import Message

from milestones.common.records import Headers, Output, TopicPartition
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.task.task import Task
from milestones.common.testing.driver import TopologyTestDriver
from tests.common.task.harness import committed, message


class RestartingDriver(TopologyTestDriver):
    """A driver that has `restart`."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._piped: dict[str, list[Output]] = {}
        super().__init__(*arguments, **settings)

    def restart(self) -> None:
        """Every task ends after a commit, and is made anew elsewhere."""
        for at, task in enumerate(self._tasks):
            self._tasks[at] = self._elsewhere(task)
        for task in self._tasks:
            self._readers.update(dict.fromkeys((partition.topic for partition in task.partitions), task))
            self._reach_end(task)
        self._process()

    def _elsewhere(self, task: Task) -> Task:
        commit, schedule = task.freeze(), task.punctuation_schedule()
        assert not commit.all_outputs(), "the driver commits after each record"
        task.applied(commit, {})
        task.close()
        opener = partial(MemoryTaskStorage, task.id, task.subtopology.stores)
        successor = Task(task.id, task.subtopology, task.partitions, self._settings(), opener)
        successor.open()
        successor.know(committed(commit))
        for store, topic in task.subtopology.changelogs.items():
            end = commit.offsets.get(TopicPartition(topic, 0))  # of a source that serves as changelog
            records = self._written(topic)[:end]
            successor.restore(store, records, len(records))
        successor.start(commit.offsets, commit.metadata)
        successor.resume_punctuations(schedule)
        return successor

    def _written(self, topic: str) -> list[Message]:
        written = self._piped.get(topic) or self._produced.get(topic, ())
        return [
            message(at, one.key, one.value, one.timestamp, topic, [*one.headers] if one.headers else None)
            for at, one in enumerate(written)
        ]

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None
    ) -> None:
        self._piped.setdefault(topic, []).append(Output(topic, 0, key, value, timestamp, headers, ""))
        super().pipe(topic, key, value, timestamp, headers)
