"""Restoration of the baseline: inline, in the stream thread, a batch per round.

*Guarantees*: a task is complete when its position has reached the changelog's end as it was, uncommitted and control
records included, when its restoration began; a store whose changelog is gone from under its offset, or is another
topic of the same name, is rebuilt; the task's other stores stay.
*Assumes*: the committed offsets of a task's inputs were read stable before `add`, and come with it; driven by the
thread that owns the restore consumer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Message

from milestones.common.errors import MilestonesError, StateCorruptError, TimeoutExceededError
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
    """One task in restoration. `stores` by changelog partition; `ends` None until the housekeeper has answered.

    `answers` is this restoration's alone: the answer to an earlier one of the same task would name an end that the
    changelog has outgrown.
    """

    task: Task
    stores: dict[TopicPartition, str]
    committed: Mapping[TopicPartition, int]
    asked_at_ms: int
    answers: Mailbox[Bounds]
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
        self._tasks: dict[TaskId, Progress] = {}
        self._by_partition: dict[TopicPartition, Progress] = {}
        self._restored: list[Task] = []
        self._removed: list[Task] = []

    def add(self, task: Task, committed: Mapping[TopicPartition, int]) -> None:
        stores = {
            TopicPartition(topic, task.id.partition): store for store, topic in task.subtopology.changelogs.items()
        }
        answers: Mailbox[Bounds] = Mailbox(1, f"{self._context.name} bounds of {task.id}'s changelogs")
        progress = Progress(task, stores, committed, self._context.clock.monotonic_ms(), answers)
        self._tasks[task.id] = progress
        self._by_partition.update(dict.fromkeys(stores, progress))
        self._ask(progress)

    def _ask(self, progress: Progress) -> None:
        question = AskBounds(progress.task.id, frozenset(progress.stores), progress.answers, topic_ids=True)
        self._context.housekeeper.put(question, timeout_ms=1_000)

    def remove(self, task: TaskId) -> None:
        complete = [restored for restored in self._restored if restored.id == task]
        self._restored = [restored for restored in self._restored if restored.id != task]
        self._removed += complete or [self._forget(task)]

    def _forget(self, id: TaskId) -> Task:
        progress = self._tasks[id]
        self._consumer.unassign(progress.stores)
        for partition in progress.stores:
            del self._by_partition[partition]
        del self._tasks[id]
        return progress.task

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
        for waiting in [progress for progress in self._tasks.values() if progress.ends is None]:
            for answer in waiting.answers.drain():
                self._begin(waiting, answer, now_ms)
        fetched = self._consumer.fetch(BATCH, timeout_ms=0)
        for partition, messages in fetched.records.items():
            self._apply(self._by_partition[partition], partition, messages, (messages[-1].offset() or 0) + 1)
        for partition, end in fetched.ends.items():
            self._apply(self._by_partition[partition], partition, [], end)
        for partition in fetched.out_of_range:
            progress = self._by_partition[partition]
            self._rebuild(progress, partition, f"{partition} no longer has offset {progress.positions[partition]}")
        for partition in fetched.gone:
            raise MilestonesError(
                f"changelog {partition} is gone: the topic was deleted under the running application; reset the "
                "application (`milestones reset`) to start over"
            )
        self._complete()
        return bool(fetched.records)

    def _begin(self, progress: Progress, answer: Bounds, now_ms: int) -> None:
        if answer.error is not None:
            if now_ms - progress.asked_at_ms > self._context.config.task_timeout_ms:
                raise TimeoutExceededError(
                    f"task {answer.task} can't learn the ends of its changelogs: {answer.error}"
                ) from answer.error
            self._ask(progress)
            return
        ends = {partition: end for partition, (_, end) in answer.bounds.items()}
        progress.ends = progress.task.restoration_ends(ends, progress.committed)
        self._leave_other_topics(progress, answer.topic_ids)
        offsets = progress.task.changelog_offsets()
        for partition, store in progress.stores.items():
            offset = offsets[store]
            first, end = answer.bounds[partition]
            if offset is not None and not first <= offset <= end:
                self._clear(progress, partition, f"{partition} has offsets {first} to {end}, the store is at {offset}")
                offset = None
            progress.positions[partition] = OFFSET_BEGINNING if offset is None else offset
        missing = progress.missing()
        if missing:
            log.info("task %s restores %s", answer.task, {str(p): count for p, count in missing.items()})
        self._consumer.assign({partition: progress.positions[partition] for partition in missing})

    def _leave_other_topics(self, progress: Progress, topic_ids: Mapping[str, str]) -> None:
        """Clear the stores whose offset is one of a topic that was deleted since, be there another of its name; then
        write down which topics are restored from: in this order, a crash in between does no harm."""
        task = progress.task
        known, offsets, ids = task.changelog_ids(), task.changelog_offsets(), dict[str, str]()
        for partition, store in progress.stores.items():
            id = topic_ids.get(partition.topic)
            if id is None:
                continue
            ids[store] = id
            if known.get(store, id) != id and offsets[store] is not None:
                why = f"topic {partition.topic} was deleted and made anew (topic id {known[store]} then, {id} now)"
                self._clear(progress, partition, why)
        task.keep_changelog_ids(ids)

    def _apply(
        self, progress: Progress, partition: TopicPartition, messages: list[Message], position: int
    ) -> None:
        """Apply what comes before the end; what a source topic that serves as changelog has after it is input."""
        assert progress.ends is not None  # else nothing is assigned
        end = progress.ends[partition]
        if position > end:
            messages, position = [message for message in messages if (message.offset() or 0) < end], end
        if position <= progress.positions[partition]:
            return
        try:
            progress.task.restore(progress.stores[partition], messages, position)
        except StateCorruptError as error:
            self._rebuild(progress, partition, str(error))
            return
        progress.positions[partition] = position
        if position >= end:
            self._consumer.unassign([partition])
        if messages:
            reach("restore.batch")

    def _rebuild(self, progress: Progress, partition: TopicPartition, why: str) -> None:
        self._clear(progress, partition, why)
        progress.positions[partition] = OFFSET_BEGINNING
        self._consumer.assign({partition: OFFSET_BEGINNING})

    def _clear(self, progress: Progress, partition: TopicPartition, why: str) -> None:
        store = progress.stores[partition]
        log.warning("task %s: store %s is rebuilt from its changelog: %s", progress.task.id, store, why)
        progress.task.clear(store, why)

    def _complete(self) -> None:
        done = [id for id, p in self._tasks.items() if p.ends is not None and not p.missing()]
        for task in done:
            reach("restore.complete")
            self._restored.append(self._forget(task))
