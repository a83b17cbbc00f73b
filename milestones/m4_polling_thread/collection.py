"""Collection in M4: the user's production exception handler runs in threads of its own.

*Guarantees*: everything that `BufferedCollection` guarantees. A handler that takes long, or hangs, delays commits. But
it delays neither the answers to the group nor processing. If the handler has given no answer about a task for
`longest_wait_ms`, it counts as failed for this task.
*Assumes*: everything that `BufferedCollection` assumes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from milestones.common.errors import ProcessingError
from milestones.ended_tasks.handler_thread import HandlerCalls, start
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.shared_parts.refused_outputs import Answer, Question, answer

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.instance.context import ThreadContext
    from milestones.parts import Sending


class ThreadedProductionHandler:
    """Asks the user's production exception handler, by handler threads.

    *Owns*: the questions without an answer; the time since which the handler has given none, by task. *Receives*:
    `Answer`s.
    """

    def __init__(self, context: ThreadContext, launch: Callable[[threading.Thread], object] = start) -> None:
        """`launch` starts a thread; tests give another function."""
        self._context, self._handler = context, context.config.production_exception_handler
        self._calls: HandlerCalls[Answer] = HandlerCalls(
            context, "ProductionExceptionHandler", lambda answer: answer.question.task, launch
        )
        self._open: dict[TaskId, dict[Question, None]] = {}
        self._silent_since_ms: dict[TaskId, int] = {}
        self._answers: deque[Answer] = deque()

    def ask(self, question: Question) -> None:
        self._silent_since_ms.setdefault(question.task, self._context.clock.monotonic_ms())
        self._open.setdefault(question.task, {})[question] = None
        self._calls.call(question.task, partial(answer, self._handler, question))

    def take(self, wait_ms: int = 0) -> Answer | None:
        if not self._answers:
            for one in self._calls.take(wait_ms):
                self._take(one)
            self._give_up()
        return self._answers.popleft() if self._answers else None

    def _take(self, one: Answer) -> None:
        """Take an answer, unless its question was given up."""
        task = one.question.task
        questions = self._open.get(task, {})
        if one.question not in questions:
            return
        self._answers.append(one)
        del questions[one.question]
        self._silent_since_ms[task] = self._context.clock.monotonic_ms()
        if not questions:
            self._forget(task)

    def _give_up(self) -> None:
        """Answer in place of the handler, if it has been silent for too long, or if this thread must end."""
        now_ms, most_ms = self._context.clock.monotonic_ms(), self._context.longest_wait_ms
        hurried = self._context.retry_policy.rest_ms() <= 0
        for task, since_ms in list(self._silent_since_ms.items()):
            if now_ms - since_ms >= most_ms or hurried:
                for question in self._open[task]:
                    error = f"production_exception_handler hasn't answered for {now_ms - since_ms} ms: {question.error}"
                    self._answers.append(Answer(question, ProcessingError(error, task)))
                self._calls.forget(task)
                self._forget(task)

    def _forget(self, task: TaskId) -> None:
        del self._open[task], self._silent_since_ms[task]


def polling_collection(context: ThreadContext, clients: Sending) -> BufferedCollection:
    """Make the collection of the polling thread."""
    return BufferedCollection(context, clients, ThreadedProductionHandler(context))
