"""`Outage`: logs that the coordinator doesn't answer.

*Guarantees*: the log gets a warning when an outage begins and every `AGAIN_MS` while it lasts, and a line when it is
over. Other failed tries are logged at DEBUG.
*Assumes*: one owner, `MemberMachine`.
"""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger(__name__)

AGAIN_MS = 30_000


class Outage:
    """The outages of one group's coordinator."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._since_ms: int | None = None
        self._told_ms = 0

    def lost(self, error: Exception, now_ms: int) -> None:
        """Log that a connection was lost, or couldn't be made."""
        if self._since_ms is None:
            self._since_ms = self._told_ms = now_ms
            log.warning("group %s: the coordinator doesn't answer, the request is repeated: %s", self._group, error)
        elif now_ms - self._told_ms >= AGAIN_MS:
            self._told_ms = now_ms
            seconds = (now_ms - self._since_ms) // 1000
            log.warning("group %s: the coordinator hasn't answered for %d s: %s", self._group, seconds, error)
        else:
            log.debug("group %s: %s", self._group, error)

    def over(self, now_ms: int) -> None:
        """Log the end of an outage, because the coordinator has answered."""
        if self._since_ms is not None:
            log.info("group %s: the coordinator answers again, after %d ms", self._group, now_ms - self._since_ms)
            self._since_ms = None
