"""`HandlerThread` runs the user's handlers. `HandlerCalls` is the polling thread's side: it orders the calls and takes
the answers.

*Guarantees*: calls about one task come in order, from one thread at a time. Calls about different tasks don't wait for
each other. If a thread can't be started, the start is retried every `AGAIN_MS`, and the calls wait. If a call raises
an error of any kind, this error ends the polling thread.
*Assumes*: the polling thread calls `HandlerCalls`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from milestones.common.last_words import named, report
from milestones.common.mailbox import Mailbox

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from milestones.common.records import TaskId
    from milestones.instance.context import ThreadContext

log: Final = logging.getLogger(__name__)

A = TypeVar("A")

AGAIN_MS = 1_000
"""The pause before the start of a thread is retried."""

CALLS_OF_A_THREAD = 16
"""The most calls that a thread makes, so that its answers find room in its mailbox."""

ANSWERS = 10_000
"""The most answers that may wait for the polling thread."""


class HandlerThread(threading.Thread):
    """Calls a handler of the user, once or several times.

    *Owns*: nothing. *Receives*: the calls. *Sends*: the result of each call. If a call raises an error, the mailbox is
    closed with it.
    """

    def __init__(
        self, name: str, inside: AbstractContextManager[None], calls: Sequence[Callable[[], A]], answers: Mailbox[A]
    ) -> None:
        """`inside`: the context manager in which the thread runs."""
        super().__init__(name=name, daemon=True)
        self._inside, self._calls = inside, calls
        self._answers: Mailbox[Any] = answers

    def run(self) -> None:
        try:
            with self._inside:
                for call in self._calls:
                    self._answers.try_put(call())
        except BaseException as error:
            self._answers.close(named(error))
            report(log, "%s dies", self.name, error=error)


def start(thread: threading.Thread) -> None:
    thread.start()


class HandlerCalls(Generic[A]):
    """*Owns*: the calls that wait for a thread, by task; the number of answers that each thread still owes. *Receives*:
    answers.

    `handler`: the handler's name, for the names of threads. `task_of` returns the task of an answer.
    """

    def __init__(
        self,
        context: ThreadContext,
        handler: str,
        task_of: Callable[[A], TaskId],
        launch: Callable[[threading.Thread], object] = start,
    ) -> None:
        """`launch` starts a thread; tests pass another function."""
        self._context, self._task_of, self._launch = context, task_of, launch
        self._name = context.identity.helper(handler)
        self._answers: Mailbox[A] = Mailbox(ANSWERS, f"{self._name} answers")
        self._waiting: dict[TaskId, deque[Callable[[], A]]] = {}
        self._owed: dict[TaskId, int] = {}
        self._again_ms: int | None = None

    def call(self, task: TaskId, handler: Callable[[], A]) -> None:
        """Order a call of `handler`. `take` returns its result later."""
        self._waiting.setdefault(task, deque()).append(handler)
        self._start_threads()

    def take(self, wait_ms: int = 0) -> list[A]:
        """Return the answers since the last call. Waits at most `wait_ms` for the first one."""
        if not self._owed and not self._waiting:
            return []
        if wait_ms:
            self._answers.wait(wait_ms)
        answers = self._answers.drain()
        for answer in answers:
            task = self._task_of(answer)
            self._owed[task] -= 1
            if not self._owed[task]:
                del self._owed[task]
        self._start_threads()
        return answers

    def forget(self, task: TaskId) -> None:
        """Drop all calls about this task that haven't begun."""
        self._waiting.pop(task, None)

    def _start_threads(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        if self._again_ms is not None and now_ms < self._again_ms:
            return
        for task in [task for task in self._waiting if task not in self._owed]:
            if not self._start(task, now_ms):
                return
        self._again_ms = None

    def _start(self, task: TaskId, now_ms: int) -> bool:
        waiting = self._waiting[task]
        calls = [waiting.popleft() for _ in range(min(CALLS_OF_A_THREAD, len(waiting)))]
        self._owed[task] = len(calls)
        inside = self._context.thread_registry.helping(self._context.number)
        try:
            self._launch(HandlerThread(self._name, inside, calls, self._answers))
        except RuntimeError as error:
            if self._again_ms is None:
                log.error("%s: %s; the start is retried until it succeeds", self._name, error)
            self._again_ms = now_ms + AGAIN_MS
            waiting.extendleft(reversed(calls))
            del self._owed[task]
            return False
        if not waiting:
            del self._waiting[task]
        return True
