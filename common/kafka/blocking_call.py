"""Runs blocking calls of a client in a thread of their own, because the client may ignore its timeouts.

*Why this way*: librdkafka's `send_offsets_to_transaction` may wait for ever. librdkafka ignores the timeout once it has
lost the connection to the coordinator (issues 5456 and 5511). So the caller must be able to abandon the call.

*Guarantees*: shortly after its timeout, each call has either returned or counts as late. The call's error is raised in
the owner's thread.
*Assumes*: one owner, which begins no call before the last one is over. While a call runs, the owner doesn't touch the
objects that the call uses. After a late call the owner never touches these objects.
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
"""The longest time that the thread sleeps while it has no call to make."""


class LateError(TimeoutError):
    """A call didn't return in time. It may still run, so the objects that it uses mustn't be used any more."""


class _Outcome(NamedTuple):
    error: BaseException | None


class CallThread:
    """A thread that makes one call at a time for its owner.

    *Owns*: while a call runs, the objects that it uses. After a late call the thread owns them for ever. *Receives*:
    calls. *Sends*: the outcome of each call.
    """

    busy: bool
    late: bool

    def __init__(self, name: str, when_late: Callable[[], object]) -> None:
        """`when_late`: a function that this thread calls if an abandoned call returns after all."""
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
        """Begin a call of `function`, without waiting. `returned` reports the outcome."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(function, timeout_ms)
        self.busy, self._timeout_ms, self._until_ns = True, timeout_ms, monotonic_ns() + timeout_ms * 1_000_000

    def returned(self, wait_ms: int) -> bool:
        """Wait at most `wait_ms` for the call. Returns True if the call is over. Raises the call's error, or
        `LateError` when the call's timeout has passed."""
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
        """End the thread, and wait for its end. If a call is running, don't wait: the thread ends after the call.
        Calling `close` twice is harmless."""
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
    """Have a new thread, with the name `name`, call the blocking `function`. Returns a future of the result or
    error."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            result = function()
        except BaseException as error:
            future.set_exception(error.with_traceback(None))  # a traceback would keep alive what the call uses
        else:
            future.set_result(result)

    threading.Thread(target=call, name=name, daemon=True).start()
    return future
