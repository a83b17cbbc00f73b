"""How long a stream thread recovers from one error after the other before it gives up.

*Guarantees*: recoveries without a commit in between end in an error after `task_timeout_ms`.
*Assumes*: one owner.
"""

from __future__ import annotations

from milestones.common.errors import TimeoutExceededError

CALM_MS = 60_000
"""Errors this far apart have nothing to do with each other, even if there was nothing to commit in between."""


class Trouble:
    """*Owns*: when the present series of errors began."""

    def __init__(self, task_timeout_ms: int) -> None:
        self._limit_ms = task_timeout_ms
        self._commits = -1
        self._began_ms = self._last_ms = 0

    def note(self, error: Exception, commits: int, now_ms: int) -> None:
        """One more error, `commits` having succeeded so far. `TimeoutExceededError` when the series is too long."""
        if commits != self._commits or now_ms - self._last_ms > CALM_MS:
            self._commits, self._began_ms = commits, now_ms
        self._last_ms = now_ms
        if now_ms - self._began_ms > self._limit_ms:
            raise TimeoutExceededError(
                f"every commit has failed for more than task_timeout_ms ({self._limit_ms}), the last one with: {error}"
            ) from error
