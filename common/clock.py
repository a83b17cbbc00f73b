"""Time, as a value that comes in through the constructor.

*Guarantees*: every part reads the time only through a `Clock`, so that a test can drive it with a step clock.
*Assumes*: nothing.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


class Clock(Protocol):
    """Two clocks: the wall clock for timestamps that others see, the monotonic clock for intervals and deadlines."""

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


JUMP_MS = 1_000
"""If the wall clock gains this much on the monotonic clock between two looks, it has jumped. A smaller gain may be an
ordinary adjustment of the wall clock."""


class _Seen(NamedTuple):
    monotonic_ms: int
    wall_ms: int
    still_ms: int


class Standstill:
    """Measures how long the machine has stood still, as far as its clocks can tell.

    While a machine is suspended, its monotonic clock stands still. Under most hypervisors it also stands still while
    the machine is paused. For other machines this time passes. When the machine wakes up, it or its time service puts
    the wall clock forward. This sudden gain counts as standing still. If someone puts the wall clock forward by hand,
    that counts, too. Then a caller is once more careful than necessary. A wall clock that is put back changes nothing.

    *Concurrency*: any thread may ask. The state is one immutable value that is replaced as a whole. If two threads look
    at the same moment, both find the same jump, and it counts once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = _Seen(clock.monotonic_ms(), clock.wall_ms(), 0)

    def ms(self) -> int:
        """For how many ms the machine has stood still since this object was made. Never decreases."""
        seen, now_ms, wall_ms = self._seen, self._clock.monotonic_ms(), self._clock.wall_ms()
        gained_ms = (wall_ms - seen.wall_ms) - (now_ms - seen.monotonic_ms)
        still_ms = seen.still_ms + (gained_ms if gained_ms >= JUMP_MS else 0)
        self._seen = _Seen(now_ms, wall_ms, still_ms)
        return still_ms


def duration(seconds: float) -> str:
    """A span of time as people say it: `90 s`, `45 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
