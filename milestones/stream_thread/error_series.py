"""How long a stream thread recovers from one error after the other before it gives up.

*Guarantees*: recoveries without a commit in between end in an error after `task_timeout_ms`. That the group has gone on
without us isn't one of Kafka's failures: what follows it is a series of its own.
*Assumes*: one owner.
"""

from __future__ import annotations

from milestones.common.errors import TimeoutExceededError
from milestones.common.kafka.failures import is_stale_member
from milestones.common.kafka.membership import StaleGenerationError

CALM_MS = 60_000
"""Errors with so much time of no error in between have nothing to do with each other, even if there was nothing to
commit in it. What a failing call and a recovery take isn't such time."""

NONE = -1
"""Number of commits that no series has begun at."""


class ErrorSeries:
    """*Owns*: when the present series of errors began."""

    def __init__(self, task_timeout_ms: int) -> None:
        self._limit_ms = task_timeout_ms
        self._commits = NONE
        self._began_ms = self._over_ms = 0

    def note(self, error: Exception, commits: int, turn_ms: int, now_ms: int) -> None:
        """One more error, in a turn of the loop that began at `turn_ms`, `commits` having succeeded so far.
        `TimeoutExceededError` when the series is too long."""
        if isinstance(error, StaleGenerationError) or is_stale_member(error):
            self._commits = NONE
            return
        if commits != self._commits or turn_ms - self._over_ms > CALM_MS:
            self._commits, self._began_ms = commits, now_ms
        self._over_ms = now_ms
        if now_ms - self._began_ms > self._limit_ms:
            raise TimeoutExceededError(
                f"every commit has failed for more than task_timeout_ms ({self._limit_ms}), the last one with: {error}"
            ) from error

    def over(self, now_ms: int) -> None:
        """The recovery from the last error is over, well or badly."""
        self._over_ms = now_ms
