"""A clock whose time passes only when a test moves it.

*Guarantees*: the wall clock and the monotonic clock move together. Neither goes back, unless a test sets the wall
clock.
*Assumes*: one thread at a time.
"""

from __future__ import annotations


class StepClock:
    """A `Clock` that stands still until `advance` or `sleep_ms` is called. `start_ms`: the wall clock's time at the
    beginning, ms since the epoch."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms, self._passed_ms = start_ms, 0

    def wall_ms(self) -> int:
        """Return the time of the wall clock, in ms since the epoch."""
        return self._start_ms + self._passed_ms

    def monotonic_ms(self) -> int:
        """Return the milliseconds since the clock was made."""
        return self._passed_ms

    def sleep_ms(self, ms: int) -> None:
        """Do the same as `advance`. No thread waits."""
        self.advance(ms)

    def set_wall_ms(self, wall_ms: int) -> None:
        """Set the wall clock to another time, earlier or later, as an administrator may do."""
        self._start_ms = wall_ms - self._passed_ms

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass. Raises `ValueError` if `ms` is negative."""
        if ms < 0:
            raise ValueError(f"time can't go back by {-ms} ms")
        self._passed_ms += ms
