"""Repeats a write that a busy engine refuses (`StateBusyError`): the pauses, the warnings, and the end.

*Guarantees*: the pauses between tries grow from `FIRST_PAUSE_MS` to `LONGEST_PAUSE_MS`. No pause is shorter than the
engine asks for. A write that waits longer than `SAY_AFTER_MS` is logged once, and once more when it is made.
*Assumes*: one thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milestones.common.clock import SystemClock
from milestones.common.errors import StateBusyError, StateError

if TYPE_CHECKING:
    from milestones.common.clock import Clock

log: Final = logging.getLogger(__name__)

FIRST_PAUSE_MS, LONGEST_PAUSE_MS, SAY_AFTER_MS = 1, 50, 1_000
STEP_PAUSE_MS: Final = 10
"""The pause of `written`, at most."""


def written(write: Callable[[], None]) -> bool:
    """Try the write once. Returns True if it was made. If it was refused, pauses shortly and returns False.

    The pause is short, because the caller has other things to do."""
    try:
        write()
        return True
    except StateBusyError as busy:
        SystemClock().sleep_ms(min(busy.pause_ms, STEP_PAUSE_MS))
        return False


class Refusals:
    """The refusals of a sequence of writes, each of which is repeated until it is made. *Owns*: the time since when the
    present write waits."""

    def __init__(self, clock: Clock, whose: str = "") -> None:
        """`whose`: the owner of the writes, which log texts and errors name."""
        self._clock, self._whose = clock, f"{whose}, " if whose else ""
        self._since_ms: int | None = None
        self._said, self._pause_ms = False, FIRST_PAUSE_MS

    def note(self, error: StateBusyError) -> int:
        """Note a refusal. Returns the pause in ms before the next try. Raises `StateError` if the write has waited so
        long that it is given up."""
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        waited_ms = now_ms - self._since_ms
        if error.limit_ms is not None and waited_ms >= error.limit_ms:
            self._begin()
            raise StateError(
                f"{self._whose}{error.where}: a write was refused for {waited_ms // 1000} s, as {error.reason}: "
                f"{error.remedy}"
            ) from error
        if waited_ms >= SAY_AFTER_MS and not (self._said or error.told):
            self._said = True
            log.warning("%s%s: a write waits, as %s: %s", self._whose, error.where, error.reason, error.remedy)
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        return max(pause_ms, error.pause_ms)

    def wait(self, error: StateBusyError) -> None:
        """Note a refusal, and sleep until the next try. Raises the errors of `note`."""
        self._clock.sleep_ms(self.note(error))

    def made(self) -> None:
        """Note that the write is made."""
        if self._since_ms is None:
            return
        if self._said:
            waited_ms = self._clock.monotonic_ms() - self._since_ms
            log.warning("%sa write that waited for %d s is made", self._whose, waited_ms // 1000)
        self._begin()

    def _begin(self) -> None:
        self._since_ms, self._said, self._pause_ms = None, False, FIRST_PAUSE_MS
