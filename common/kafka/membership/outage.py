"""The lines of the log while no coordinator answers.

*Guarantees*: one warning when an outage begins, one each `AGAIN_MS` as long as it lasts, a line when it is over; the
tries in between are at DEBUG.
*Assumes*: one owner, the member's machine.
"""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger(__name__)

AGAIN_MS = 30_000


class Outage:
    """`group`: the group whose coordinator is asked."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._since_ms: int | None = None
        self._told_ms = 0

    def lost(self, error: Exception, now_ms: int) -> None:
        """Log that a connection was lost, or couldn't be made."""
        if self._since_ms is None:
            self._since_ms = self._told_ms = now_ms
            log.warning("group %s: the coordinator doesn't answer, it is asked again: %s", self._group, error)
        elif now_ms - self._told_ms >= AGAIN_MS:
            self._told_ms = now_ms
            seconds = (now_ms - self._since_ms) // 1000
            log.warning("group %s: the coordinator hasn't answered for %d s: %s", self._group, seconds, error)
        else:
            log.debug("group %s: %s", self._group, error)

    def over(self, now_ms: int) -> None:
        """Log the end of an outage, as a coordinator has answered."""
        if self._since_ms is not None:
            log.info("group %s: the coordinator answers again, after %d ms", self._group, now_ms - self._since_ms)
            self._since_ms = None
