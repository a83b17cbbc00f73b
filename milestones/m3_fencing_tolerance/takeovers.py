"""Whose transactional id it is.

The client has one error for a transaction that timed out and an id that was taken over. They are told apart by the
transaction's age: Kafka counts from its first record, we from just before; so what is younger than the time-out, or
isn't open at all, was taken over. Nobody may do that: an id is one thread's alone. The age counts the time for which
this machine stood still, as Kafka's does (`Standstill`).

*Guarantees*: an id that others use too is an error after a few times, however they take turns.
*Assumes*: one owner, the stream thread.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from milestones.common.errors import TransactionalIdError
from milestones.common.kafka.failures import is_fenced

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext

log = logging.getLogger(__name__)

MOST_TAKEOVERS, TAKEOVER_WINDOW_MS = 3, 600_000
"""So often, within such a time, and an id isn't ours alone. Less may be a producer of our own that was left behind in a
call, or a paused machine whose time service hasn't put its clock right yet."""


class Takeovers:
    """*Owns*: when the id was taken over. `fenced`: how often its producers were, time-outs included."""

    def __init__(self, context: ThreadContext) -> None:
        self._context = context
        self._moments: deque[int] = deque(maxlen=MOST_TAKEOVERS)
        self.fenced = 0

    def note(self, error: Exception, age_ms: int | None) -> None:
        """One more error of the producer; `age_ms`: of the transaction that was open then. `TransactionalIdError` when
        it is a take-over, and one too many."""
        if not is_fenced(error):
            return
        self.fenced += 1
        context, now_ms = self._context, self._context.clock.monotonic_ms()
        timeout_ms = context.config.transaction_timeout_ms
        if age_ms is not None and age_ms >= timeout_ms:
            log.warning(
                "%s: a transaction was open for %d ms, longer than transaction_timeout_ms (%d): the broker ended it",
                context.name, age_ms, timeout_ms,
            )  # fmt: skip
            return
        self._moments.append(now_ms)
        since_ms = now_ms - self._moments[0]
        if len(self._moments) == MOST_TAKEOVERS and since_ms < TAKEOVER_WINDOW_MS:
            raise TransactionalIdError(
                f"another process uses the transactional id {context.transactional_id}: it has fenced this one "
                f"{MOST_TAKEOVERS} times within {since_ms / 1000:.1f} s. The id comes from the state directory: was "
                "that copied, or is it shared? Give each instance its own state_dir, empty or moved, not copied; "
                "nothing is lost, all that was committed is in Kafka"
            ) from error
