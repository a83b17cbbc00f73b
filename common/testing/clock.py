"""Time that passes only when a test says so.

*Guarantees*: both clocks move together, never back, unless a test sets the wall clock.
*Assumes*: one thread at a time.
"""

from __future__ import annotations


class StepClock:
    """A `Clock` that stands still until `advance` or `sleep_ms`. `start_ms`: wall clock, ms since the epoch."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms, self._passed_ms = start_ms, 0

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._start_ms + self._passed_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since the clock was made."""
        return self._passed_ms

    def sleep_ms(self, ms: int) -> None:
        """As `advance`: no thread waits."""
        self.advance(ms)

    def set_wall_ms(self, wall_ms: int) -> None:
        """Have the wall clock show another time, earlier or later, as an administrator may."""
        self._start_ms = wall_ms - self._passed_ms

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass; `ValueError` when negative."""
        if ms < 0:
            raise ValueError(f"time can't go back by {-ms} ms")
        self._passed_ms += ms
