"""How long a thread asks Kafka again for what may still succeed.

*Guarantees*: once it is told to hurry, no call begins after what time it was left. What is asked step by step waits no
longer in a step than that is told to.
*Assumes*: each call has a time-out of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from milestones.common.clock import Clock
from milestones.common.steps import Steps

T = TypeVar("T")

RETRY_PAUSE_MS = 50
"""Before a call is made again: some errors come back at once."""

SOONEST_MS, LATEST_MS = 100, 2_000
"""A question that had no answer is asked again after as long as it has been without one, within these limits: a topic
that was just made has its leader soon, and a cluster in trouble isn't asked by every instance at once."""


def again_after_ms(failing_ms: int) -> int:
    """The pause before a question is asked again that has had no answer for so long."""
    return max(SOONEST_MS, min(failing_ms, LATEST_MS))


class RetryPolicy:
    """`timeout_ms`: how long one call may be made again. *Concurrency*: `hurry` may be called by any thread, it sets
    one number; the rest is the owner's."""

    def __init__(self, timeout_ms: int, clock: Clock) -> None:
        self._timeout_ms, self._clock = timeout_ms, clock
        self._end_ms = math.inf

    def hurry(self, rest_ms: int) -> None:
        """From now on there is only so much time left for all calls together."""
        self._end_ms = min(self._end_ms, self._clock.monotonic_ms() + rest_ms)

    def rest_ms(self) -> float:
        """What is left for all calls together; infinite unless there is a hurry."""
        return max(0.0, self._end_ms - self._clock.monotonic_ms())

    def retry(
        self, call: Callable[[], T], passing: Callable[[KafkaException], bool], within_ms: int | None = None
    ) -> T:
        """`call()` again while its error is a passing one; its last error when time is up, or `within_ms` is over."""
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
        """As `retry`, of a call that is begun, and has `returned` once that says so, waiting at most so many ms."""
        limit_ms = self._timeout_ms if within_ms is None else min(within_ms, self._timeout_ms)
        until_ms = self._clock.monotonic_ms() + limit_ms
        wait_ms = 0
        while True:
            try:
                begin()
                while not returned(wait_ms):
                    wait_ms = yield
                return
            except KafkaException as exception:
                if not passing(exception) or self._clock.monotonic_ms() >= min(until_ms, self._end_ms):
                    raise
            again_ms = self._clock.monotonic_ms() + RETRY_PAUSE_MS
            while (left_ms := again_ms - self._clock.monotonic_ms()) > 0:
                wait_ms = yield
                self._clock.sleep_ms(min(wait_ms, left_ms))
            wait_ms = 0
