"""`RetryPolicy`: how long a thread repeats calls to Kafka that may still succeed.

*Guarantees*: after `hurry`, no call is repeated once the time that it leaves is over. A step of `steps` waits at most
the time that its caller sends.
*Assumes*: each call has a time-out of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from milestones.common.clock import Clock
from milestones.common.steps import Steps, until_returned

T = TypeVar("T")

RETRY_PAUSE_MS = 50
"""The pause before a call is repeated. Without it, calls that fail without delay would be repeated too often."""

SOONEST_MS, LATEST_MS = 100, 2_000
"""The shortest and the longest pause before an unanswered question is repeated. Between these limits the pause is as
long as the question has been unanswered. So a question about a new topic is repeated soon, and later many instances
don't flood a cluster that recovers."""


def again_after_ms(failing_ms: int) -> int:
    """Returns the pause before a question is repeated that has been unanswered for `failing_ms`."""
    return max(SOONEST_MS, min(failing_ms, LATEST_MS))


class RetryPolicy:
    """Repeats calls for a limited time. `timeout_ms`: the time for which one call may be repeated. *Concurrency*: any
    thread may call `hurry`, which sets one number. Only the owner calls the other methods."""

    def __init__(self, timeout_ms: int, clock: Clock) -> None:
        self._timeout_ms, self._clock = timeout_ms, clock
        self._end_ms = math.inf

    def hurry(self, rest_ms: int) -> None:
        """Allow only `rest_ms` more for all calls together, from now on. A call that is being repeated counts, too."""
        self._end_ms = min(self._end_ms, self._clock.monotonic_ms() + rest_ms)

    def rest_ms(self) -> float:
        """Returns the time left for all calls together; infinity before `hurry` is called."""
        return max(0.0, self._end_ms - self._clock.monotonic_ms())

    def retry(
        self, call: Callable[[], T], passing: Callable[[KafkaException], bool], within_ms: int | None = None
    ) -> T:
        """Repeat `call` while `passing` accepts its error. Returns its result. Raises the last error when the time or
        `within_ms` is over."""
        limit_ms = self._timeout_ms if within_ms is None else min(within_ms, self._timeout_ms)
        until_ms = self._clock.monotonic_ms() + limit_ms
        while True:
            try:
                return call()
            except KafkaException as exception:
                if not passing(exception) or self._clock.monotonic_ms() >= min(until_ms, self._end_ms):
                    raise
            self._clock.sleep_ms(RETRY_PAUSE_MS)

    def steps(
        self,
        begin: Callable[[], None],
        returned: Callable[[int], bool],
        passing: Callable[[KafkaException], bool],
        within_ms: int | None = None,
    ) -> Steps[None]:
        """Do the same as `retry`, in steps. `begin` begins the call. `returned` returns True when the call is over."""
        limit_ms = self._timeout_ms if within_ms is None else min(within_ms, self._timeout_ms)
        until_ms = self._clock.monotonic_ms() + limit_ms
        while True:
            try:
                begin()
                yield from until_returned(returned)
                return
            except KafkaException as exception:
                if not passing(exception) or self._clock.monotonic_ms() >= min(until_ms, self._end_ms):
                    raise
            again_ms = self._clock.monotonic_ms() + RETRY_PAUSE_MS
            while (left_ms := again_ms - self._clock.monotonic_ms()) > 0:
                wait_ms = yield
                self._clock.sleep_ms(min(wait_ms, left_ms))
