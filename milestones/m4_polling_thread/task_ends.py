"""Task ends: what is one task's failure ends that task, not the polling thread.

*Guarantees*: the user's uncaught exception handler is asked about each failure once, in a thread of its own. Without a
handler the task ends. Errors of the membership, of a transaction, of damaged stores, and bugs are the thread's, as
before.
*Assumes*: driven by the polling thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milestones.common.errors import (
    OwnershipError,
    ProductionError,
    StateCorruptError,
    TaskCorruptedError,
    TaskMigratedError,
)
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.mailbox import Mailbox
from milestones.instance.context import Exceptions
from milestones.parts import DecidedError, TaskDecision

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.instance.context import ThreadContext

log = logging.getLogger(__name__)

OF_THE_THREAD = (
    OwnershipError, StaleGenerationError, StateCorruptError, TaskCorruptedError, TaskMigratedError,
)  # fmt: skip
"""Errors that the thread recovers from, or ends of, whichever task met them."""


@dataclass(frozen=True)
class Answer:
    """The handler's decision about a task's failure."""

    task: TaskId
    error: BaseException
    decision: Exceptions


class HandlerThread(threading.Thread):
    """Asks the user's uncaught exception handler about one failure.

    *Owns*: nothing. *Receives*: the failure. *Sends*: the `Answer`.
    """

    def __init__(
        self, name: str, context: ThreadContext, task: TaskId, error: BaseException, answers: Mailbox[Answer]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._surroundings, self._task, self._error, self._answers = context, task, error, answers

    def run(self) -> None:
        with self._surroundings.thread_registry.helping(self._surroundings.number):
            decision = self._surroundings.decide(self._error, Exceptions.END_TASK)
        self._answers.try_put(Answer(self._task, self._error, decision))


def start(thread: threading.Thread) -> None:
    thread.start()


class SingleTaskEnds:
    """*Owns*: the failures that the handler is asked about. *Receives*: `Answer`s."""

    def __init__(self, context: ThreadContext, launch: Callable[[threading.Thread], object] = start) -> None:
        """`launch` starts a thread; another one is for tests."""
        self._context, self._launch = context, launch
        self._answers: Mailbox[Answer] = Mailbox(10_000, f"{context.name} decisions about tasks")
        self._asked: dict[TaskId, BaseException] = {}

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        if isinstance(error, OF_THE_THREAD) or not isinstance(error, Exception):
            raise error
        if not owned:
            log.error("task %s, which leaves, didn't close cleanly: %s", task, error, exc_info=error)
            return
        log.error("task %s has failed and is ended, the others go on: %s", task, error, exc_info=error)
        self._asked[task] = error
        name = self._context.identity.helper("UncaughtExceptionHandler")
        self._launch(HandlerThread(name, self._context, task, error, self._answers))

    def task_of(self, error: BaseException) -> TaskId | None:
        return error.task if isinstance(error, ProductionError) else None

    def forget(self, task: TaskId) -> None:
        self._asked.pop(task, None)

    def take_decided(self) -> Sequence[TaskDecision]:
        decided = []
        for answer in self._answers.drain() if len(self._answers) else ():
            if self._asked.get(answer.task) is not answer.error:
                continue
            del self._asked[answer.task]
            if answer.decision in (Exceptions.SHUTDOWN_CLIENT, Exceptions.SHUTDOWN_APPLICATION):
                raise DecidedError(answer.error, answer.decision)
            decided.append(TaskDecision(answer.task, again=answer.decision is Exceptions.REPLACE_THREAD))
        return decided
