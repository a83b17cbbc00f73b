"""`Takeovers`: finds out that another process uses a thread's transactional id.

The client has one error for a transaction that timed out and for an id that was taken over. The age of the transaction
shows which of the two it was. Kafka counts the age from the transaction's first record, `Takeovers` from just before.
So if a transaction is younger than the time-out, or isn't open at all, the id was taken over. An id belongs to one
thread, so a take-over is an error of the set-up. The age includes the time for which this machine stood still, as
Kafka's does (`Standstill`).

*Guarantees*: an id that two processes use becomes an error after `MOST_TAKEOVERS` take-overs. A take-over counts if it
has cost a transaction, or came while a producer was initialised. A take-over after a commit that turns out to be made
costs nothing, and doesn't count.
*Assumes*: one owner, the stream thread.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from milestones.common.errors import TransactionalIdError
from milestones.common.kafka.failures import is_fenced

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext

log: Final = logging.getLogger(__name__)

MOST_TAKEOVERS, TAKEOVER_WINDOW_MS = 3, 600_000
"""This number of take-overs within this time proves that another process uses the id. Fewer may come from an earlier
producer of the thread that hung in a call, or from a paused machine whose time service hasn't set its clock yet."""


class Takeovers:
    """*Owns*: the times of the take-overs. `fenced`: how often the thread's producers were fenced, time-outs included.
    A new producer that is fenced while it is initialised counts separately."""

    def __init__(self, context: ThreadContext) -> None:
        self._context = context
        self._moments: deque[int] = deque(maxlen=MOST_TAKEOVERS)
        self.fenced: int = 0

    def note(self, error: Exception, age_ms: int | None) -> None:
        """Note an error of the producer. `age_ms`: the age of the transaction that was open then. Raises
        `TransactionalIdError` if there were too many take-overs."""
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
