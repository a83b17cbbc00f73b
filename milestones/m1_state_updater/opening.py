"""Store opening from M1 on: threads of their own, the openers, open and close stores.

*Why this way*: rocksdict holds Python's global lock while it opens a database. Several openers at the same time would
hold it all the time, and be no faster. So openers take turns, and leave the lock to other threads for a while after
each opening.

*Guarantees*: no call uses a disk. Only `wait` and `close` wait for stores. A store that takes long to open delays
another store for `SLOW_S` at most, unless `OPENERS` stores take long. Stores are closed before others are opened. If
stores are opened after the end of the stream thread, their opener closes them.
*Assumes*: the stream thread makes all calls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.shared_parts.opening_by_message import CAPACITY, LONG_MS, OpeningByMessage, answer_or_close, drive
from milestones.shared_parts.store_requests import CloseRequest, OpenRequest, SetAsideRequest, StoreRequest, carry_out

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import StoreAnswer

log: Final = logging.getLogger(__name__)

NOBODY = object()

OPENERS = 4
"""The most threads that open stores. Another opener is started when all others are busy."""

SLOW_S = 0.25
"""An opener that has had the turn for this time waits for a disk, or for a lock. Then another opener takes the turn."""

REST_MS = 100
"""An opener leaves the global lock to others for as long as its opening took, but no longer than this."""


class Turn:
    """At most one opener at a time has the turn. An opener that has waited for another one for `SLOW_S` takes the turn.

    *Concurrency*: any thread may call. The lock is held only for moments.
    """

    def __init__(self, slow_s: float = SLOW_S) -> None:
        self._changed, self._holder, self._slow_s = threading.Condition(), NOBODY, slow_s

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the turn for the block. Another thread may take the turn over before the block ends."""
        own = object()
        with self._changed:
            while self._is_kept_up_by(self._holder):
                pass
            self._holder = own
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                if self._holder is own:
                    self._holder = NOBODY
                    self._changed.notify_all()

    def _is_kept_up_by(self, holder: object) -> bool:
        """Wait for `SLOW_S` at most while `holder` has the turn. Returns False if no opener has the turn, or `holder`
        still has it after this time. Returns True if `holder` has given it back, or another opener has taken it."""
        return holder is not NOBODY and self._changed.wait_for(lambda: self._holder is not holder, self._slow_s)


TURN = Turn()
"""The turn of all openers in the process, because the whole process shares Python's global lock."""


class StoreOpener:
    """The step function of an opener. *Receives*: `StoreRequest`s. *Sends*: `StoreAnswer`s."""

    def __init__(self, context: ThreadContext, requests: Mailbox[StoreRequest], answers: Mailbox[StoreAnswer]) -> None:
        self._context, self._requests, self._answers, self._turn = context, requests, answers, TURN
        self.died: Callable[[BaseException], object] = lambda _: None
        """Called with the error that has ended the opener's thread."""

    def run_once(self, wait_ms: int) -> bool:
        """Carry out a request, if one comes within `wait_ms`. Returns False if no more requests will come."""
        try:
            request = self._requests.get(wait_ms)
        except MailboxClosedError:
            return False
        if request is not None:
            self.carry_out(request)
        return True

    def carry_out(self, request: StoreRequest) -> None:
        """Carry the request out, and answer it."""
        if isinstance(request, CloseRequest):
            self._answer(carry_out(self._context, request))
        else:
            self._open(request)

    def _open(self, request: OpenRequest | SetAsideRequest) -> None:
        clock = self._context.clock
        with self._turn.taken():
            began_ms = clock.monotonic_ms()
            self._answer(carry_out(self._context, request))
            if (took_ms := clock.monotonic_ms() - began_ms) > 0:
                clock.sleep_ms(min(took_ms, REST_MS))

    def _answer(self, answer: StoreAnswer) -> None:
        answer_or_close(self._context, answer, self._answers)


class OpenerThread(threading.Thread):
    """Drives a `StoreOpener` until its mailbox is closed and empty. If an error ends it, the error is its last
    message."""

    def __init__(self, name: str, opener: StoreOpener) -> None:
        super().__init__(name=name, daemon=True)
        self._opener = opener

    def run(self) -> None:
        drive(self.name, lambda: self._opener.run_once(LONG_MS), self._opener.died)


class OpenerHandle(Protocol):
    """A started opener: a thread."""

    def join(self, timeout: float | None = None) -> None: ...


def start(name: str, opener: StoreOpener) -> OpenerHandle:
    thread = OpenerThread(name, opener)
    thread.start()
    return thread


class ThreadedOpening(OpeningByMessage):
    """*Owns*: the openers; the number of unanswered requests. *Sends* and *receives* the same as its base class."""

    def __init__(
        self,
        context: ThreadContext,
        launch: Callable[[str, StoreOpener], OpenerHandle] = start,
        wait: Callable[[Mailbox[StoreAnswer], int], object] = Mailbox.wait,
    ) -> None:
        """`launch` starts an opener, in a thread of this name. Tests pass other functions than the defaults."""
        super().__init__(context, wait)
        self._launch = launch
        self._requests: Mailbox[StoreRequest] = Mailbox(CAPACITY, f"{context.name} stores to open and to close")
        self._openers: list[OpenerHandle] = []
        self._unanswered = 0
        self._refused = False

    def take_back(self, request: StoreRequest) -> bool:
        return self._requests.take_back(request)

    def put(self, request: StoreRequest, *, first: bool) -> None:
        self._requests.put(request, timeout_ms=1_000, first=first)
        self._unanswered += 1
        self._start_opener()

    def take_left(self) -> Sequence[StoreRequest]:
        self._requests.close()
        return self._requests.drain() if len(self._requests) else ()

    def _start_opener(self) -> None:
        """Start another opener when all others are busy. If the system can't start a thread, requests wait for the
        present openers; if there are none, each turn retries."""
        if len(self._openers) >= min(OPENERS, self._unanswered):
            return
        name = f"{self.context.identity.helper('StoreOpener')}-{len(self._openers) + 1}"
        try:
            opener = StoreOpener(self.context, self._requests, self.answers)
            opener.died = self.died
            self._openers.append(self._launch(name, opener))
        except RuntimeError as error:
            if not (self._openers or self._refused):
                log.warning("%s can't be started, and tasks wait for it: %s", name, error)
            self._refused = True

    def run_once(self, *, at_once: bool = False) -> list[StoreAnswer]:
        if not self._openers:
            self._start_opener()
        answers = super().run_once(at_once=at_once)
        self._unanswered -= len(answers)
        return answers

    def close(self, timeout_ms: int) -> None:
        """Let the openers end. The openers first carry out all requests, and close stores that were opened too late."""
        self.take_no_more_answers()
        self._requests.close()
        clock = self.context.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        for opener in self._openers:
            opener.join(max(0, deadline_ms - clock.monotonic_ms()) / 1000)
