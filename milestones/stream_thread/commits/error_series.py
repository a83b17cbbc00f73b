"""`ErrorSeries`: limits how long a stream thread recovers from one error after the other.

*Guarantees*: recoveries without a commit in between end in an error after `task_timeout_ms`, of which the time between
two errors counts for half at most: a long recovery, or a process that stands still, isn't many failures. A lost
generation isn't a failure of Kafka, nor is an output that Kafka refuses, whatever becomes of it, or what one task ends
of: a new series begins after it.
*Assumes*: one owner.
"""

from __future__ import annotations

from milestones.common.errors import LeftOutError, RefusedTogetherError, SendAgainError, TimeoutExceededError
from milestones.common.kafka.failures import is_stale_member
from milestones.common.kafka.membership import StaleGenerationError

CALM_MS = 60_000
"""The time without errors that ends a series, also when there was nothing to commit in it. The time of a failing call
and of a recovery doesn't count."""

ANSWERED = (StaleGenerationError, LeftOutError, SendAgainError, RefusedTogetherError)
"""Errors of a Kafka that answers: a lost generation, and outputs that it refuses."""

NONE = -1
"""A number of commits at which no series has begun."""


class ErrorSeries:
    """*Owns*: how long the present series of errors is."""

    def __init__(self, task_timeout_ms: int) -> None:
        self._limit_ms = task_timeout_ms
        self._commits = NONE
        self._failing_ms = self._noted_ms = self._over_ms = 0

    def note(self, error: Exception, commits: int, turn_ms: int, now_ms: int) -> None:
        """Note an error in a turn of the loop that began at `turn_ms`, after `commits` successful commits.
        `TimeoutExceededError` when the series is too long."""
        if isinstance(error, ANSWERED) or is_stale_member(error):
            self._commits = NONE
            return
        if commits != self._commits or turn_ms - self._over_ms > CALM_MS:
            self._commits, self._failing_ms, self._noted_ms = commits, 0, now_ms
        self._failing_ms += min(now_ms - self._noted_ms, self._limit_ms // 2)
        self._noted_ms = self._over_ms = now_ms
        if self._failing_ms > self._limit_ms:
            raise TimeoutExceededError(
                f"every commit has failed for more than task_timeout_ms ({self._limit_ms}), the last one with: {error}"
            ) from error

    def explained(self) -> None:
        """Note that these errors were the fault of one task, which ends of them: the next one begins a new series."""
        self._commits = NONE

    def over(self, now_ms: int) -> None:
        """Note the end of the recovery from the last error, successful or not."""
        self._over_ms = now_ms
