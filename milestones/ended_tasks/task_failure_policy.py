"""`TaskEndingPolicy`: the failure of one task ends this task, and not the thread that polls.

*Guarantees*: the user's uncaught exception handler is asked about each failure once, in a thread of its own. Without a
handler `task_failed` decides. Some errors still concern the whole thread: errors of the membership, of a transaction or
of damaged stores, and bugs.
*Assumes*: the thread that owns the tasks makes all calls. This thread is the polling thread, or up to M3 a stream
thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milestones.common.config.keys import END_TASK, REPLACE, SHUTDOWN_CLIENT
from milestones.common.diagnostics import brief, text_of
from milestones.common.errors import (
    OffsetsRefusedError,
    OwnershipError,
    ProcessingError,
    ProductionError,
    StateCorruptError,
    TaskCorruptedError,
    TaskMigratedError,
)
from milestones.common.kafka.failures import is_undelivered
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.ended_tasks.commit_isolation import CommitIsolation, Reached
from milestones.ended_tasks.handler_thread import HandlerCalls, start
from milestones.instance.context import UncaughtExceptionResponse
from milestones.parts import Attribution, DecidedError, TaskDecision

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
    from milestones.instance.context import ThreadContext
    from milestones.parts import OpenTransaction

log: Final = logging.getLogger(__name__)

OF_THE_THREAD = (
    DecidedError, OwnershipError, StaleGenerationError, StateCorruptError, TaskCorruptedError, TaskMigratedError,
)  # fmt: skip
"""Errors that concern the thread, whichever task met them: it recovers from them, or ends."""


DECISIONS: Final = {
    SHUTDOWN_CLIENT: UncaughtExceptionResponse.SHUTDOWN_CLIENT,
    END_TASK: UncaughtExceptionResponse.END_TASK,
    REPLACE: UncaughtExceptionResponse.REPLACE_THREAD,
}
"""The decision for each value of `task_failed`, if the user has set no handler."""
_WHOLE_CLIENT: Final = (UncaughtExceptionResponse.SHUTDOWN_CLIENT, UncaughtExceptionResponse.SHUTDOWN_APPLICATION)
"""Decisions that end more than the task."""


@dataclass(frozen=True)
class HandlerDecision:
    """The decision of the user's handler about a task's failure."""

    task: TaskId
    error: BaseException
    decision: UncaughtExceptionResponse


class TaskEndingPolicy:
    """*Owns*: the failures about which the handler is asked. *Receives*: `HandlerDecision`s."""

    def __init__(self, context: ThreadContext, launch: Callable[[threading.Thread], object] = start) -> None:
        """`launch` starts a thread; tests pass another function."""
        self._context = context
        self._calls: HandlerCalls[HandlerDecision] = HandlerCalls(
            context, "UncaughtExceptionHandler", lambda answer: answer.task, launch
        )
        self._asked: dict[TaskId, BaseException] = {}
        self._isolation = CommitIsolation()

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        if isinstance(error, OF_THE_THREAD) or not isinstance(error, Exception):
            raise error
        if not owned:
            log.error("task %s, which leaves, didn't close cleanly: %s", task, text_of(error), exc_info=brief(error))
            return
        log.error("task %s has failed and is ended: %s", task, text_of(error), exc_info=brief(error))
        self._asked[task] = error
        self._isolation.clear(task)
        self._calls.call(task, lambda: HandlerDecision(task, error, self._decide(error)))

    def _decide(self, error: BaseException) -> UncaughtExceptionResponse:
        return self._context.decide(error, DECISIONS[self._context.config.task_failed], of_task=True)

    def attribute(self, error: BaseException, transaction: OpenTransaction) -> Attribution | None:
        if isinstance(error, OffsetsRefusedError):
            theirs = (id for id, reached in transaction.reached.items() if reached.keys() & error.partitions)
            return next((Attribution(failed=id) for id in theirs), None)
        not_yet_known = isinstance(error, RefusedInTransactionError) and error.unknown_topic
        if not_yet_known or is_undelivered(error):
            return self._undelivered(error, transaction.reached)
        if not isinstance(error, ProductionError | ProcessingError):
            return None
        reached = transaction.reached
        if error.task is not None or (len(reached) == 1 and transaction.identifies_rejected):
            return Attribution(failed=error.task or next(iter(reached)))
        if len(reached) > 1:
            self._suspect(reached, error)
            return Attribution()
        self.extend_turn()
        return Attribution(isolate_batches=True) if reached else None

    def extend_turn(self) -> None:
        """Extend the suspect's turn until the producer has found out which output is refused."""
        self._isolation.extend_turn()

    def _suspect(self, reached: Mapping[TaskId, Reached], error: BaseException) -> None:
        log.warning(
            "%s: Kafka doesn't take a record of one of %d tasks; each commits alone until it is known of which: %s",
            self._context.name, len(reached), error,
        )  # fmt: skip
        self.isolate(reached)

    def isolate(self, reached: Mapping[TaskId, Reached], *, rests: bool = False) -> None:
        """Make each of these tasks commit alone, and all other tasks without them. `rests`: True if the tasks pause
        between their commits."""
        self._isolation.begin(reached, self._now_ms(), rests=rests)

    def _undelivered(self, error: BaseException, reached: Mapping[TaskId, Reached]) -> Attribution | None:
        """Blame a task for outputs that Kafka doesn't take yet: their topic isn't known, or takes nothing for a
        while. Tasks whose outputs Kafka takes mustn't wait for the others, so the tasks are isolated. If a task has met
        this error alone for `task_timeout_ms`, it has failed because of it."""
        task, *others = reached or [None]
        suspected_ms = None if others or task is None else self._isolation.suspected_ms(task, self._now_ms())
        if suspected_ms is not None:
            return Attribution(failed=task) if suspected_ms > self._context.config.task_timeout_ms else None
        if reached:
            self._suspect(reached, error)
        return None

    def _now_ms(self) -> int:
        return self._context.clock.monotonic_ms()

    @property
    def isolating(self) -> bool:
        return bool(self._isolation)

    def admits(self, task: TaskId) -> bool:
        return self._isolation.admits(task)

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._isolation.committed(offsets)

    def between_transactions(self, now_ms: int, has_work: Callable[[TaskId], bool]) -> None:
        self._isolation.run_once(now_ms, has_work)

    def stop_isolating(self) -> None:
        self._isolation.stop()

    def forget(self, task: TaskId) -> None:
        self._asked.pop(task, None)
        self._isolation.clear(task)

    def take_decided(self) -> Sequence[TaskDecision]:
        decided = []
        for answer in self._calls.take():
            if self._asked.get(answer.task) is not answer.error:
                continue
            del self._asked[answer.task]
            if answer.decision in _WHOLE_CLIENT:
                raise DecidedError(answer.error, answer.decision)
            if answer.decision is UncaughtExceptionResponse.END_TASK:
                log.error("task %s stays ended, its partitions stand still; the others go on", answer.task)
            decided.append(TaskDecision(answer.task, again=answer.decision is UncaughtExceptionResponse.REPLACE_THREAD))
        return decided
