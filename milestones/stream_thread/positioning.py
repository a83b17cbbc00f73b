"""Finds out where tasks begin: reads their committed offsets (stable ones), and the ids of the topics.

    task --FetchOffsets--> committed offsets --AskTopicIds--> ids ---> the task begins

*Guarantees*: a task is part of one question at a time. If a task is taken out of a question, the answer is ignored for
it. A task that was rolled back while the member joins waits for the new generation. No task begins at offsets of a
topic that was deleted and recreated meanwhile: the housekeeper ends the client then. Every offset that a task commits
carries the id of the topic of its first position, so that the next start can find a recreated topic. If a task's
questions have no answer for `task_timeout_ms`, the task has failed. Until then the log and `failing` report it.
*Assumes*: driven by the thread that owns the member and the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from milestones.common.errors import MembershipError, MilestonesError, TimeoutExceededError
from milestones.common.kafka.membership import Committed
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.instance.topic_ids import AskTopicIds, TopicIds, known_ids

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients
    from milestones.stream_thread.task_registry import AssignedTask

log: Final = logging.getLogger(__name__)

GATHER_MS = 100
"""How long tasks with open stores wait for tasks whose stores are being opened, so that all begin together. Otherwise,
if a partition is assigned while a fetch of other partitions is under way, its first fetch waits for the answer to that
fetch, up to `fetch.wait.max.ms`."""


AGAIN_MS = 500
"""The pause before tasks are asked about once more, after the housekeeper couldn't look at the topics, or didn't find
them."""

TELL_MS = 30_000
"""The time between two log lines about tasks that can't be positioned."""


class Positioning:
    """*Owns*: which task belongs to which question, and since when. *Sends*: questions for committed offsets,
    `AskTopicIds`.
    *Receives*: `Committed`, `TopicIds`."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._context, self._clients, self._timeout_ms = context, clients, context.config.task_timeout_ms
        self._answers: Mailbox[Committed] = Mailbox(1_000, f"{context.name} committed offsets")
        self._ids: Mailbox[TopicIds] = Mailbox(1_000, f"{context.name} topic ids")
        self._asked: dict[AssignedTask, tuple[int, int]] = {}
        self._committed: dict[AssignedTask, Mapping[TopicPartition, OffsetAndMetadata]] = {}
        """The committed offsets of the tasks whose topic ids have been asked for."""
        self._failing: dict[AssignedTask, tuple[int, Exception]] = {}
        """For each task whose question has had no answer: the time of the first error, and the last error."""
        self._failed: list[tuple[TaskId, MilestonesError]] = []
        self._tell_ms = 0
        self._resume_ms = 0
        self._number = 0
        self._opening_since_ms: int | None = None

    def forget(self, task: AssignedTask) -> None:
        """Ignore all answers about the task. The task no longer waits for an answer."""
        self._asked.pop(task, None)
        self._committed.pop(task, None)
        self._failing.pop(task, None)

    def take_failed(self) -> list[tuple[TaskId, MilestonesError]]:
        """Return the tasks whose positions can't be found out, each with its error. The caller must stop them."""
        failed, self._failed = self._failed, []
        return failed

    def failing(self) -> dict[TaskId, str]:
        """Return the reason why a task has no position yet, keyed by task. The reason is the error that the task's last
        question got instead of an answer."""
        return {task.id: f"where its input begins isn't known: {error}" for task, (_, error) in self._failing.items()}

    def run_once(
        self, tasks: list[AssignedTask], now_ms: int, *, opening: bool
    ) -> list[tuple[AssignedTask, Mapping[TopicPartition, OffsetAndMetadata]]]:
        """Ask about the tasks that aren't part of a question yet. Returns the tasks that have got their answer, each
        with its committed offsets. `opening`: True if stores of other tasks are being opened. Raises `MembershipError`
        when the coordinator refuses to answer, and `TimeoutExceededError` when offsets don't get stable within
        `task_timeout_ms`."""
        for answer in self._answers.drain():
            if isinstance(answer.error, MembershipError):
                raise answer.error
            asked = self._end(answer.number)
            if answer.error is None:
                self._ask_for_ids(dict.fromkeys(asked, answer.offsets), now_ms)
        answered = self._take_ids(now_ms)
        known = {task for task, _ in answered}
        # A task that was rolled back couldn't commit under the old generation while the member joins: so it waits.
        joining = self._clients.member.joining() if tasks else False
        ready = [t for t in tasks if t not in self._asked and t not in known and not (joining and t.rolled_back)]
        if ready and now_ms >= self._resume_ms and self._gathered(now_ms, opening=opening):
            partitions = frozenset(partition for task in ready for partition in task.active_task.partitions)
            self._clients.member.fetch_offsets(self._begin(ready, now_ms), partitions, self._answers)
        self._check_patience(now_ms)
        return answered

    def _begin(self, tasks: Iterable[AssignedTask], now_ms: int) -> int:
        """Record a new question about these tasks. Returns the question's number."""
        self._number += 1
        self._asked.update(dict.fromkeys(tasks, (self._number, now_ms)))
        return self._number

    def _end(self, number: int) -> list[AssignedTask]:
        """End the question of this number. Returns its tasks that still wait for the answer."""
        tasks = [task for task, (asked, _) in self._asked.items() if asked == number]
        for task in tasks:
            del self._asked[task]
        return tasks

    def _ask_for_ids(
        self, committed: Mapping[AssignedTask, Mapping[TopicPartition, OffsetAndMetadata]], now_ms: int
    ) -> None:
        if not committed:
            return
        self._committed |= committed
        known: dict[TopicPartition, int] = {}
        for task, offsets in committed.items():
            known |= known_ids(task.active_task.partitions, offsets, task.active_task.topic_ids)
        topics = frozenset(partition.topic for task in committed for partition in task.active_task.partitions)
        topics = topics.union(*map(self._written, committed))
        question = AskTopicIds(self._begin(committed, now_ms), topics, known, self._ids)
        self._context.housekeeper.put(question, timeout_ms=1_000)

    def _take_ids(self, now_ms: int) -> list[tuple[AssignedTask, Mapping[TopicPartition, OffsetAndMetadata]]]:
        answered = []
        for answer in self._ids.drain():
            tasks = {task: self._committed.pop(task) for task in self._end(answer.number)}
            if answer.error is not None:
                self._resume_ms = now_ms + AGAIN_MS
                self._unanswered(tasks, answer.error, now_ms)
                continue
            for task, committed in tasks.items():
                self._failing.pop(task, None)
                task.active_task.belongs_to(answer.ids, self._written(task))
                answered.append((task, committed))
        return answered

    def _unanswered(self, tasks: Collection[AssignedTask], error: Exception, now_ms: int) -> None:
        """Record that a question about these tasks got this error instead of an answer. The question will be asked once
        more."""
        if tasks and now_ms >= self._tell_ms:
            self._tell_ms = now_ms + TELL_MS
            names = ", ".join(sorted(str(task.id) for task in tasks))
            log.warning("where the input of tasks %s begins isn't known yet: %s", names, error)
        for task in tasks:
            since_ms, _ = self._failing.get(task, (now_ms, error))
            self._failing[task] = since_ms, error
            if now_ms - since_ms > self._timeout_ms:
                late = TimeoutExceededError(
                    f"task {task.id} can't learn within task_timeout_ms ({self._timeout_ms}) where its input begins, "
                    f"or which topics it has: {error}"
                )
                late.__cause__ = error
                self._failed.append((task.id, late))

    def _written(self, task: AssignedTask) -> frozenset[str]:
        return self._context.application.written_topics(task.id.subtopology)

    def _gathered(self, now_ms: int, *, opening: bool) -> bool:
        if not opening:
            self._opening_since_ms = None
        elif self._opening_since_ms is None:
            self._opening_since_ms = now_ms
        return self._opening_since_ms is None or now_ms - self._opening_since_ms >= GATHER_MS

    def _check_patience(self, now_ms: int) -> None:
        since_ms = now_ms - self._timeout_ms
        late = sorted(str(task.id) for task, (_, asked_ms) in self._asked.items() if asked_ms < since_ms)
        if late:
            raise TimeoutExceededError(
                f"the committed offsets of tasks {', '.join(late)} didn't get stable within task_timeout_ms "
                f"({self._timeout_ms}): the coordinator is away, or a transaction of another instance pends on them"
            )
