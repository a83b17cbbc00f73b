"""`OpeningByMessage`: another thread opens and closes stores for the thread that polls, which sends it requests.

*Guarantees*: no call uses a disk. Only `wait` and `close` wait for stores. If stores are opened after the thread that
asked for them has ended, the thread that opened them closes them.
*Assumes*: the thread that polls makes all calls.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateError
from milestones.common.last_words import report, typed
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.parts import OpenedStores
from milestones.shared_parts.store_requests import CloseRequest, OpenRequest, SetAsideRequest, StoreRequest, carry_out

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import TaskStorage
    from milestones.instance.context import ThreadContext
    from milestones.parts import StoreAnswer

log: Final = logging.getLogger(__name__)

CAPACITY = 100_000
"""The most messages in a mailbox. An instance has fewer tasks, so that only a bug fills a mailbox."""

LONG_MS = 60_000


class OpeningByMessage(ABC):
    """Store opening by another thread, which a subclass starts: the requests to it, and its answers.

    *Owns*: the mailbox of answers. *Sends*: `StoreRequest`s. *Receives*: `StoreAnswer`s; the error that has ended the
    other thread. `run_once` raises this error once. After that the calling thread closes stores itself."""

    def __init__(self, context: ThreadContext, wait: Callable[[Mailbox[StoreAnswer], int], object]) -> None:
        """`wait` waits for an answer, at most for the given ms."""
        self.context: ThreadContext = context
        self._wait = wait
        self._death: StateError | None = None
        self._told_death = False
        self.answers: Mailbox[StoreAnswer] = Mailbox(CAPACITY, f"{context.name} opened and closed stores")

    @abstractmethod
    def put(self, request: StoreRequest, *, first: bool) -> None:
        """Put the request into the thread's mailbox. `first`: put it before all waiting requests."""

    @abstractmethod
    def take_left(self) -> Sequence[StoreRequest]:
        """Close the thread's mailbox, and take the requests that are left in it."""

    @abstractmethod
    def take_back(self, request: StoreRequest) -> bool:
        """Take a waiting request back. Returns False if it no longer waited."""

    def died(self, error: BaseException) -> None:
        """Note that this error has ended the other thread, which calls this itself."""
        death = StateError(f"a thread that opens and closes stores has died, and no store is opened: {typed(error)}")
        death.__cause__ = error
        self._death = death

    def send(self, request: StoreRequest, *, first: bool = False) -> None:
        """Send the request to the thread. `first`: put it before all waiting requests. If the thread has died, stores
        are closed here."""
        if self._death is None:
            self.put(request, first=first)
        else:
            self._answer_here(request, self._death)

    def _answer_here(self, request: StoreRequest, death: StateError) -> None:
        """Answer the request here, because the other thread has died: close open stores, and open none."""
        answer: StoreAnswer = OpenedStores(request.task, error=death)
        if not isinstance(request, OpenRequest):
            closed = carry_out(self.context, CloseRequest(request.task, request.stores))
            answer = closed if isinstance(request, CloseRequest) else answer
        with suppress(MailboxClosedError):  # the thread that would take the answer has ended
            self.answers.put(answer, timeout_ms=1_000)

    def open(self, task: TaskId) -> None:
        self.send(OpenRequest(task))

    def cancel(self, task: TaskId) -> None:
        if self.take_back(OpenRequest(task)):
            self.answers.put(OpenedStores(task), timeout_ms=1_000)

    def set_aside(self, task: TaskId, stores: TaskStorage, damage: Mapping[str, object]) -> None:
        self.send(SetAsideRequest(task, stores, damage))

    def close_stores(self, task: TaskId, stores: TaskStorage) -> None:
        self.send(CloseRequest(task, stores), first=True)

    def run_once(self, *, at_once: bool = False) -> list[StoreAnswer]:
        if self._death is not None and not self._told_death:
            self._told_death = True
            for request in self.take_left():
                self._answer_here(request, self._death)
            raise self._death
        return self.answers.drain() if len(self.answers) else []

    def wait(self, timeout_ms: int) -> None:
        self._wait(self.answers, timeout_ms)

    def take_no_more_answers(self) -> None:
        """Close stores that were opened and not taken. If stores are opened later, the thread that opens them closes
        them."""
        self.answers.close()
        for answer in self.answers.drain() if len(self.answers) else ():
            if isinstance(answer, OpenedStores) and answer.stores is not None:
                self.close_stores(answer.task, answer.stores)


def answer_or_close(context: ThreadContext, answer: StoreAnswer, answers: Mailbox[StoreAnswer]) -> None:
    """Send the answer to the stream thread. If that thread has ended, close the stores that were opened for it."""
    try:
        answers.put(answer, LONG_MS)
    except MailboxClosedError:
        close_unwanted(context, answer)


def close_unwanted(context: ThreadContext, answer: StoreAnswer) -> None:
    """Close the stores that were opened for a stream thread that has ended."""
    if isinstance(answer, OpenedStores) and answer.stores is not None:
        log.info("stores of task %s were opened after the end of their thread, and are closed", answer.task)
        carry_out(context, CloseRequest(answer.task, answer.stores))


def drive(name: str, step: Callable[[], bool], died: Callable[[BaseException], object]) -> None:
    """Run a thread: take steps until `step` returns False. If a step raises an error, call `died` with it."""
    try:
        while step():
            pass
    except BaseException as error:
        died(error)
        report(log, "%s dies", name, error=error)
