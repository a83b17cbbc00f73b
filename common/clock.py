"""`Clock`: gives the time to every part of the runtime. Parts get their clock as an argument of the constructor.

*Guarantees*: every part reads the time only through a `Clock`. So a test can set the time, with a step clock.
*Assumes*: nothing.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


class Clock(Protocol):
    """The interface of a clock. It has a wall clock for timestamps that others see, and a monotonic clock for intervals
    and deadlines."""

    def wall_ms(self) -> int:
        """Returns the wall clock's time in milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Returns the monotonic clock's time in milliseconds. It never goes back."""
        ...

    def sleep_ms(self, ms: int) -> None:
        """Wait `ms` milliseconds."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, ms: int) -> None:
        time.sleep(ms / 1000)


JUMP_MS = 1_000
"""If the wall clock has advanced this much further than the monotonic clock since the last reading, it has jumped. A
smaller difference may be an ordinary adjustment of the wall clock."""


class _Seen(NamedTuple):
    monotonic_ms: int
    wall_ms: int
    still_ms: int


class Standstill:
    """Measures how long this computer has been suspended, as far as its clocks show it.

    While a computer is suspended, its monotonic clock stops. Under most hypervisors it also stops while a virtual
    machine is paused. For other computers this time passes. After the wake-up the wall clock is put forward. Such a
    jump of the wall clock counts as suspended time. If a person puts the wall clock forward, this counts, too. Then the
    caller is more careful than necessary, which is harmless. If the wall clock is put back, nothing changes.

    *Concurrency*: any thread may call `ms`. The state is one immutable value that is replaced as a whole. If two
    threads call at the same moment, both find the same jump, and it counts once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = _Seen(clock.monotonic_ms(), clock.wall_ms(), 0)

    def ms(self) -> int:
        """Returns for how many ms the computer has been suspended since this object was made. Never decreases."""
        seen, now_ms, wall_ms = self._seen, self._clock.monotonic_ms(), self._clock.wall_ms()
        gained_ms = (wall_ms - seen.wall_ms) - (now_ms - seen.monotonic_ms)
        still_ms = seen.still_ms + (gained_ms if gained_ms >= JUMP_MS else 0)
        self._seen = _Seen(now_ms, wall_ms, still_ms)
        return still_ms


def duration(seconds: float) -> str:
    """Returns a duration as text: `90 s`, `45 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
