"""`Budget`: how long a commit without an answer, and a recovery, may block the stream thread.

*Guarantees*: three waits have a quarter of `max_poll_interval_ms` each: for a commit's answers (offsets, then end), for
the question how that commit ended, and for the recovery. So the group keeps a stream thread that has all three in one
turn: the membership thread sends heartbeats meanwhile. A wait ends sooner with `task_timeout_ms`, though a single call
may take `request_timeout_ms`. A wait also ends sooner when the thread must stop.
*Assumes*: a call returns when its time-out is over. A producer that hangs takes `GRACE_MS` longer
(`common/kafka/begun_calls.py`): in the last quarter of a minute there is room for three of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext


class Budget:
    """The time that is left for one of the three waits, from now on. Each has a quarter of `max_poll_interval_ms`; the
    last quarter stays free."""

    def __init__(self, context: ThreadContext) -> None:
        config = context.config
        self._clock, self._retry_policy = context.clock, context.retry_policy
        self._began_ms = context.clock.monotonic_ms()
        patience_ms = max(config.task_timeout_ms, config.request_timeout_ms)  # for one call at least
        self._whole_ms = min(patience_ms, context.longest_wait_ms)

    def left_ms(self, most_ms: int | None = None) -> int:
        """Return the time left, at least 1 and at most `most_ms`."""
        left = min(self._whole_ms - self.spent_ms(), self._retry_policy.rest_ms())
        return max(1, int(left if most_ms is None else min(left, most_ms)))

    def spent_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms
