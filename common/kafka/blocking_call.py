"""Blocking calls of a client that doesn't keep its own timeouts.

librdkafka's `send_offsets_to_transaction` may wait for ever: librdkafka doesn't look at the timeout once the
coordinator's connection is gone (issues 5456 and 5511). So the caller must be able to give the call up.

*Guarantees*: a call is over, or late, after its timeout plus a little; its error is raised in the owner's thread.
*Assumes*: one owner, which begins no call before the last one is over, and doesn't touch the objects of a call until
then, or ever again once the call was late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic_ns
from typing import NamedTuple, TypeVar

from milestones.common.kafka.failures import caught
from milestones.common.mailbox import Mailbox

T = TypeVar("T")

IDLE_MS = 60_000
"""The longest sleep of the thread without a call."""


class LateError(TimeoutError):
    """A call didn't return in time. As the call may still run, its objects mustn't be used any more."""


class _Outcome(NamedTuple):
    error: BaseException | None


class CallThread:
    """A thread that makes one call at a time for its owner.

    *Owns*: the objects of a call while the call lasts, those of a late call for good. *Receives*: calls. *Sends*: their
    outcomes.
    """

    busy: bool
    late: bool

    def __init__(self, name: str, when_late: Callable[[], object]) -> None:
        """`when_late`: called in this thread when a call that was given up returns after all."""
        self._name, self._when_late = name, when_late
        self._calls: Mailbox[Callable[[], object]] = Mailbox(1, f"{name} calls")
        self._outcomes: Mailbox[_Outcome] = Mailbox(1, f"{name} outcomes")
        self._thread: threading.Thread | None = None
        self._timeout_ms, self._until_ns = 0, 0
        self.busy = self.late = False

    def call(self, function: Callable[[], object], timeout_ms: int) -> None:
        """Call `function` and raise its error. Raises `LateError` if the call takes longer than `timeout_ms`."""
        self.begin(function, timeout_ms)
        while not self.returned(timeout_ms):
            pass

    def begin(self, function: Callable[[], object], timeout_ms: int) -> None:
        """Begin a call of `function`; `returned` gives the outcome."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(function, timeout_ms)
        self.busy, self._timeout_ms, self._until_ns = True, timeout_ms, monotonic_ns() + timeout_ms * 1_000_000

    def returned(self, wait_ms: int) -> bool:
        """True if the call is over, after a wait of at most `wait_ms`; raises the call's error. Raises `LateError` if
        the call's time is up."""
        left_ms = max(0, -((monotonic_ns() - self._until_ns) // 1_000_000))
        outcome = self._outcomes.get(min(wait_ms, left_ms))
        if outcome is None:
            if monotonic_ns() < self._until_ns:
                return False
            self.leave()
            raise LateError(f"no answer within {self._timeout_ms} ms")
        self.busy = False
        if outcome.error is not None:
            raise outcome.error
        return True

    def leave(self) -> None:
        self.late = True
        self.close()

    def close(self) -> None:
        """End the thread, and wait for it unless it is in a call: then it ends once that is over. Harmless when
        repeated."""
        self._calls.close()
        if self._thread is not None and not self.busy:
            self._thread.join()

    def _run(self) -> None:
        while not self._calls.closed:
            if self._calls.wait(IDLE_MS) and len(self._calls):
                self._outcomes.try_put(_Outcome(caught(self._calls.drain()[0], BaseException)))
        if self.late:
            self._when_late()


def called_aside(name: str, function: Callable[[], T]) -> Future[T]:
    """Have a new thread of this name call `function`, which waits; returns a future with the result or the error."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            result = function()
        except BaseException as error:
            future.set_exception(error.with_traceback(None))  # whose frames would keep what the call uses
        else:
            future.set_result(result)

    threading.Thread(target=call, name=name, daemon=True).start()
    return future
