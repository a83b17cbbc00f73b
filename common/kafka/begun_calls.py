"""`BegunCalls`: a client whose blocking calls run in another thread while the owner asks if they are over.

*Guarantees*: `returned` waits at most `wait_ms`, and raises the call's error. While a call runs in another thread, the
client refuses further calls of its owner. After a transactional call that misses its deadline, the client can't be used
any more.
*Assumes*: one owner thread. A call that changes nothing, such as a flush, may be abandoned for another call.
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
"""The time that a transactional call gets beyond its time-out. After that its client counts as dead."""


class BegunCalls(Owned):
    """Base class of a client whose blocking calls run in another thread. *Owns*: the call that is running."""

    def __init__(self, name: str, when_late: Callable[[], object]) -> None:
        """`when_late`: a function that the call's thread calls if an abandoned call returns after all."""
        super().__init__()
        self._call_thread = CallThread(name, when_late)
        self._look: Callable[[int], bool] | None = None

    @property
    def busy(self) -> bool:
        """True while a call runs in another thread. The owner can't use the client until the call is over."""
        return self._look is not None and self._call_thread.busy

    def returned(self, wait_ms: int) -> bool:
        """Wait at most `wait_ms` for the begun call. Returns True if the call is over. Raises the call's error."""
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
        """Have another thread make a transactional call. After a success the owner's thread calls `then`. An error is
        raised inside the context `explained`, which may replace it by a clearer one."""
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
        """Wait, in steps, for a running call, before the client is closed. The call's result or error is ignored. When
        `left_ms` returns 0 or less, the call is abandoned."""
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
