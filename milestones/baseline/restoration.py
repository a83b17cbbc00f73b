"""Restoration of the baseline: inline, in the stream thread, a batch per round.

*Guarantees*: a task is complete when its position has reached the changelog's end as it was, uncommitted and control
records included, when its restoration began; a store whose changelog is gone from under its offset is rebuilt, the
task's other stores stay.
*Assumes*: the committed offsets of a task's inputs were read stable before `add`, and come with it; driven by the
thread that owns the restore consumer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Message

from milestones.common.errors import TimeoutExceededError
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition
from milestones.common.testing.faults import reach
from milestones.housekeeper import AskBounds, Bounds

if TYPE_CHECKING:
    from milestones.common.task.task import Task
    from milestones.context import ThreadContext
    from milestones.parts import Clients

log = logging.getLogger(__name__)

BATCH = 1_000
"""Changelog records per round."""


@dataclass
class Progress:
    """One task in restoration. `stores` by changelog partition; `ends` None until the housekeeper has answered."""

    task: Task
    stores: dict[TopicPartition, str]
    committed: Mapping[TopicPartition, int]
    asked_at_ms: int
    ends: Mapping[TopicPartition, int] | None = None
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    def missing(self) -> dict[TopicPartition, int]:
        """Records still to come, by changelog partition that isn't complete."""
        if self.ends is None:
            return {}
        return {p: end - at for p, end in self.ends.items() if (at := max(0, self.positions.get(p, 0))) < end}


class InlineRestoration:
    """The tasks in restoration.

    *Owns*: those tasks between `add` and `take_restored` / `take_removed`, the restore consumer's assignment.
    *Sends*: `AskBounds`. *Receives*: `Bounds`.
    """

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._context, self._consumer = context, clients.restore_consumer
        self._answers: Mailbox[Bounds] = Mailbox(10_000, f"{context.name} changelog bounds")
        self._tasks: dict[TaskId, Progress] = {}
        self._by_partition: dict[TopicPartition, Progress] = {}
        self._restored: list[Task] = []
        self._removed: list[Task] = []

    def add(self, task: Task, committed: Mapping[TopicPartition, int]) -> None:
        stores = {
            TopicPartition(topic, task.id.partition): store for store, topic in task.subtopology.changelogs.items()
        }
        progress = Progress(task, stores, committed, self._context.clock.monotonic_ms())
        self._tasks[task.id] = progress
        self._by_partition.update(dict.fromkeys(stores, progress))
        self._ask(progress)

    def _ask(self, progress: Progress) -> None:
        question = AskBounds(progress.task.id, frozenset(progress.stores), self._answers)
        self._context.housekeeper.put(question, timeout_ms=1_000)

    def remove(self, task: TaskId) -> None:
        progress = self._forget(task)
        self._removed.append(progress.task)

    def _forget(self, task: TaskId) -> Progress:
        progress = self._tasks.pop(task)
        self._consumer.unassign(progress.stores)
        for partition in progress.stores:
            del self._by_partition[partition]
        return progress

    def take_restored(self) -> list[Task]:
        restored, self._restored = self._restored, []
        return restored

    def take_removed(self) -> list[Task]:
        removed, self._removed = self._removed, []
        return removed

    def remaining(self) -> Mapping[TaskId, int]:
        return {task: sum(progress.missing().values()) for task, progress in self._tasks.items()}

    def run_once(self, now_ms: int) -> bool:
        """1. note the ends that came; 2. fetch a batch and apply it; 3. hand out what is complete."""
        if not self._tasks:
            return False
        for answer in self._answers.drain():
            self._begin(answer, now_ms)
        fetched = self._consumer.fetch(BATCH, timeout_ms=0)
        for partition, messages in fetched.records.items():
            self._apply(self._by_partition[partition], partition, messages)
        for partition, end in fetched.ends.items():
            progress = self._by_partition[partition]
            progress.task.restore(progress.stores[partition], [], end)
            self._advance(progress, partition, end)
        for partition in fetched.out_of_range:
            self._rebuild(self._by_partition[partition], partition)
        self._complete()
        return bool(fetched.records)

    def _begin(self, answer: Bounds, now_ms: int) -> None:
        progress = self._tasks.get(answer.task)
        if progress is None or progress.ends is not None:
            return
        if answer.error is not None:
            if now_ms - progress.asked_at_ms > self._context.config.task_timeout_ms:
                raise TimeoutExceededError(
                    f"task {answer.task} can't learn the ends of its changelogs: {answer.error}"
                ) from answer.error
            self._ask(progress)
            return
        ends = {partition: end for partition, (_, end) in answer.bounds.items()}
        progress.ends = progress.task.restoration_ends(ends, progress.committed)
        offsets = progress.task.changelog_offsets()
        for partition, store in progress.stores.items():
            offset = offsets[store]
            first, end = answer.bounds[partition]
            if offset is not None and not first <= offset <= end:
                self._clear(progress, partition, f"has offsets {first} to {end}, the store is at {offset}")
                offset = None
            progress.positions[partition] = OFFSET_BEGINNING if offset is None else offset
        missing = progress.missing()
        if missing:
            log.info("task %s restores %s", answer.task, {str(p): count for p, count in missing.items()})
        self._consumer.assign({partition: progress.positions[partition] for partition in missing})

    def _apply(self, progress: Progress, partition: TopicPartition, messages: list[Message]) -> None:
        position = (messages[-1].offset() or 0) + 1
        progress.task.restore(progress.stores[partition], messages, position)
        self._advance(progress, partition, position)
        reach("restore.batch")

    def _advance(self, progress: Progress, partition: TopicPartition, position: int) -> None:
        progress.positions[partition] = max(position, progress.positions[partition])
        if partition not in progress.missing():
            self._consumer.unassign([partition])

    def _rebuild(self, progress: Progress, partition: TopicPartition) -> None:
        self._clear(progress, partition, f"no longer has offset {progress.positions[partition]}")
        progress.positions[partition] = OFFSET_BEGINNING
        self._consumer.assign({partition: OFFSET_BEGINNING})

    def _clear(self, progress: Progress, partition: TopicPartition, why: str) -> None:
        store = progress.stores[partition]
        log.warning("task %s: changelog %s %s; store %s is rebuilt", progress.task.id, partition, why, store)
        progress.task.clear(store)

    def _complete(self) -> None:
        done = [id for id, p in self._tasks.items() if p.ends is not None and not p.missing()]
        for task in done:
            reach("restore.complete")
            self._restored.append(self._forget(task).task)
