"""`ErrorSeries`: limits how long a stream thread recovers from one error after the other.

*Guarantees*: if recoveries follow each other for `task_timeout_ms` without a commit in between, that is an error. The
time between two errors counts at most as half of `task_timeout_ms`. So one long recovery, or a process that was stopped
for a while, doesn't count like many failures. Some errors don't show that Kafka fails, and end the series: a lost
generation, an output that Kafka refuses, and an error that ends only one task.
*Assumes*: one owner.
"""

from __future__ import annotations

from milestones.common.errors import LeftOutError, RefusedTogetherError, SendAgainError, TimeoutExceededError
from milestones.common.kafka.failures import is_stale_member
from milestones.common.kafka.membership import StaleGenerationError

CALM_MS = 60_000
"""A series ends after this time without errors, even if nothing was committed in it. The time in a failing call or in a
recovery doesn't count."""

ANSWERED = (StaleGenerationError, LeftOutError, SendAgainError, RefusedTogetherError)
"""Errors that show that Kafka answers: a lost generation, and outputs that Kafka refuses."""

NONE = -1
"""The value of `_commits` while there is no series."""


class ErrorSeries:
    """*Owns*: how long the current series of errors has lasted."""

    def __init__(self, task_timeout_ms: int) -> None:
        self._limit_ms = task_timeout_ms
        self._commits = NONE
        self._failing_ms = self._noted_ms = self._over_ms = 0

    def note(self, error: Exception, commits: int, turn_ms: int, now_ms: int) -> None:
        """Note an error in a turn of the loop that began at `turn_ms`, after `commits` successful commits.
        Raises `TimeoutExceededError` when the series lasts too long."""
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
        """Record that one task caused these errors, and ends because of them: the next error begins a new series."""
        self._commits = NONE

    def over(self, now_ms: int) -> None:
        """Note the end of the recovery from the last error, successful or not."""
        self._over_ms = now_ms
