"""`BegunCalls`: a client whose calls are begun, and looked at until they are over.

*Guarantees*: `returned` waits at most `wait_ms`, and raises the call's error. While another thread makes a call the
owner makes no other: that is checked once per call. A transactional call that misses its deadline leaves the client
dead.
*Assumes*: one owner thread. A call that changes nothing (a flush) may be given up for another call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import OwnershipError
from milestones.common.kafka.blocking_call import CallThread, LateError
from milestones.common.kafka.clients import Owned
from milestones.common.steps import Steps

GRACE_MS = 5_000
"""The time by which a transactional call may be late before its client counts as dead."""


class BegunCalls(Owned):
    """*Owns*: the call under way."""

    def __init__(self, name: str, when_late: Callable[[], object]) -> None:
        """`when_late`: called by the call's thread when a call that was given up returns after all."""
        super().__init__()
        self._call_thread = CallThread(name, when_late)
        self._look: Callable[[int], bool] | None = None

    @property
    def busy(self) -> bool:
        """True if another thread makes a call: the client is of no use until that is over."""
        return self._look is not None and self._call_thread.busy

    def returned(self, wait_ms: int) -> bool:
        """True if the begun call is over, after a wait of at most `wait_ms`; raises the call's error."""
        self._check_owner()
        if self._look is None:
            raise OwnershipError("no call of this client is under way: this is a bug")
        try:
            with self._waiting():
                over = self._look(wait_ms)
        except BaseException:
            self._look = None
            raise
        if over:
            self._look = None
        return over

    def _check_free(self) -> None:
        self._check_owner()
        if self.busy:
            raise OwnershipError("a call of this client is under way: this is a bug")

    def _finish(self, timeout_ms: int) -> None:
        while not self.returned(timeout_ms):
            pass

    def _begin_call(
        self,
        function: Callable[[], None],
        timeout_ms: int,
        then: Callable[[], None] = lambda: None,
        explained: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Have another thread make a transactional call. `then` is called here, once it has succeeded; an error is
        raised inside of `explained`."""
        self._check_free()
        self._call_thread.begin(function, timeout_ms + GRACE_MS)

        def look(wait_ms: int) -> bool:
            try:
                with explained():
                    over = self._call_thread.returned(wait_ms)
            except LateError as error:
                stuck = KafkaError(KafkaError._TIMED_OUT, f"the producer hangs in a transactional call: {error}", True)
                raise KafkaException(stuck) from error
            if over:
                then()
            return over

        self._look = look

    def _call_over(self, left_ms: Callable[[], int]) -> Steps[None]:
        """Wait, in steps, for a call under way, before the client is closed. The call's outcome is dropped; a call that
        isn't over when nothing of `left_ms` is left is given up."""
        self._look, wait_ms = None, 0
        while self._call_thread.busy and not self._call_thread.late:
            try:
                returned = self._call_thread.returned(max(0, min(wait_ms, left_ms())))
            except (KafkaException, LateError):
                return
            if returned:
                return
            if left_ms() <= 0:
                self._call_thread.leave()
                return
            wait_ms = yield
