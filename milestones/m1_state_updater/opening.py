"""Store opening from M1 on: threads of its own open and close stores, never the stream thread.

*Guarantees*: no call but `wait` waits for a disk. A store that takes long to open or to close keeps up no other one,
unless `OPENERS` of them do. Stores that are opened after the end of the stream thread are closed by their opener.
*Assumes*: driven by the stream thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.m1_state_updater.handover import CAPACITY
from milestones.parts import OpenedStores
from milestones.restoration.store_requests import CloseStores, OpenStores, StoreRequest, carry_out

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import TaskStorage
    from milestones.instance.context import ThreadContext
    from milestones.parts import StoreAnswer

log = logging.getLogger(__name__)

OPENERS = 4
"""Threads that open stores, at most: each is begun when all others have something to do."""

LONG_MS = 60_000


class StoreOpener:
    """A step function. *Receives*: `StoreRequest`s. *Sends*: `StoreAnswer`s."""

    def __init__(self, context: ThreadContext, requests: Mailbox[StoreRequest], answers: Mailbox[StoreAnswer]) -> None:
        self._context, self._requests, self._answers = context, requests, answers

    def run_once(self, wait_ms: int) -> bool:
        """Carry out a request, if one comes within `wait_ms`. False: none will come any more."""
        try:
            request = self._requests.get(wait_ms)
        except MailboxClosedError:
            return False
        if request is not None:
            self._answer(carry_out(self._context, request))
        return True

    def _answer(self, answer: StoreAnswer) -> None:
        try:
            self._answers.put(answer, LONG_MS)
        except MailboxClosedError:
            close_unwanted(self._context, answer)


def close_unwanted(context: ThreadContext, answer: StoreAnswer) -> None:
    """Close what was opened for a stream thread that has ended."""
    if isinstance(answer, OpenedStores) and answer.stores is not None:
        log.info("stores of task %s are open after the end of their thread, and closed", answer.task)
        carry_out(context, CloseStores(answer.task, answer.stores))


class OpenerThread(threading.Thread):
    """Drives a `StoreOpener` until its mailbox is closed and empty."""

    def __init__(self, name: str, opener: StoreOpener) -> None:
        super().__init__(name=name, daemon=True)
        self._opener = opener

    def run(self) -> None:
        while self._opener.run_once(LONG_MS):
            pass


def start(name: str, opener: StoreOpener) -> None:
    OpenerThread(name, opener).start()


class ThreadedOpening:
    """*Owns*: the openers; how many requests aren't answered. *Sends*: `StoreRequest`s. *Receives*: `StoreAnswer`s."""

    def __init__(
        self,
        context: ThreadContext,
        launch: Callable[[str, StoreOpener], None] = start,
        wait: Callable[[Mailbox[StoreAnswer], int], object] = Mailbox.wait,
    ) -> None:
        """`launch` starts an opener, in a thread of this name; `wait`: for an answer, at most so many ms; others than
        the defaults are for tests."""
        self._context, self._launch, self._wait = context, launch, wait
        self._requests: Mailbox[StoreRequest] = Mailbox(CAPACITY, f"{context.name} stores to open and to close")
        self._answers: Mailbox[StoreAnswer] = Mailbox(CAPACITY, f"{context.name} opened and closed stores")
        self._openers = self._unanswered = 0

    def open(self, task: TaskId) -> None:
        self._send(OpenStores(task))

    def close_stores(self, task: TaskId, stores: TaskStorage) -> None:
        self._send(CloseStores(task, stores))

    def _send(self, request: StoreRequest) -> None:
        self._requests.put(request, timeout_ms=1_000)
        self._unanswered += 1
        if self._openers < min(OPENERS, self._unanswered):
            self._openers += 1
            name = self._context.name.replace("StreamThread", "StoreOpener")
            self._launch(f"{name}-{self._openers}", StoreOpener(self._context, self._requests, self._answers))

    def run_once(self, *, at_once: bool = False) -> list[StoreAnswer]:
        answers = self._answers.drain() if len(self._answers) else []
        self._unanswered -= len(answers)
        return answers

    def wait(self, timeout_ms: int) -> None:
        self._wait(self._answers, timeout_ms)

    def close(self) -> None:
        """Openers end once they have done what was asked for."""
        self._requests.close()
        self._answers.close()
        for answer in self.run_once():
            close_unwanted(self._context, answer)
