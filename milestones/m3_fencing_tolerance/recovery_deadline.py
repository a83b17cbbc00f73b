"""How long a recovery may hold up the stream thread.

*Guarantees*: all waits of a recovery together end within a quarter of `max_poll_interval_ms`, so that the group keeps
the thread (the membership thread sends heartbeats meanwhile), within `task_timeout_ms` (but for one call), and sooner
when the thread is to stop. The question how a commit ended has such a limit of its own.
*Assumes*: each single call keeps its time-out, plus a little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext

POLL_SHARE = 4
"""The share of `max_poll_interval_ms` for each of three steps in a row: a commit without an answer, the question how
that commit ended, and the recovery."""


class Budget:
    """The time that is left for one recovery, from now on."""

    def __init__(self, context: ThreadContext) -> None:
        config = context.config
        self._clock, self._retry_policy = context.clock, context.retry_policy
        self._began_ms = context.clock.monotonic_ms()
        patience_ms = max(config.task_timeout_ms, config.request_timeout_ms)  # for one call at least
        self._whole_ms = min(patience_ms, config.max_poll_interval_ms // POLL_SHARE)

    def left_ms(self, most_ms: int | None = None) -> int:
        """The time left, at least 1, at most `most_ms`."""
        left = min(self._whole_ms - self.spent_ms(), self._retry_policy.rest_ms())
        return max(1, int(left if most_ms is None else min(left, most_ms)))

    def spent_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms
