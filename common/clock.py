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
