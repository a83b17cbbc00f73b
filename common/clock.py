"""Time, as a value that comes in through the constructor.

*Guarantees*: no part reads the machine's clock but through a `Clock`, so that a step clock can drive it.
*Assumes*: nothing.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: wall time for timestamps that others see, monotonic time for intervals and deadlines."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes back."""
        ...

    def sleep_ms(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        ...


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, ms: int) -> None:
        time.sleep(ms / 1000)


def duration(seconds: float) -> str:
    """A span of time as people say it: `90 s`, `45 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
