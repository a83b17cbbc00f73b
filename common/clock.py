"""Time, as a value that comes in through the constructor.

*Guarantees*: no part reads the machine's clock but through a `Clock`, so that a step clock can drive it.
*Assumes*: nothing.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


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


JUMP_MS = 1_000
"""A wall clock that gains so much on the monotonic one between two looks has jumped. Less may be its being adjusted."""


class _Seen(NamedTuple):
    monotonic_ms: int
    wall_ms: int
    still_ms: int


class Standstill:
    """The time for which the machine has stood still, as far as its clocks tell.

    A monotonic clock doesn't count the time for which a machine is suspended, nor, under most hypervisors, that for
    which it is paused; other machines count that time. When the machine wakes up, it or its time service puts the wall
    clock forward: the sudden gain counts. A wall clock that is put forward by hand counts, too, and makes a caller more
    careful than it need be, once. A wall clock that is put back changes nothing.

    *Concurrency*: any thread may ask; the state is one immutable value, swapped whole. Two threads that look at the
    same time find the same jump, which counts once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = _Seen(clock.monotonic_ms(), clock.wall_ms(), 0)

    def ms(self) -> int:
        """Milliseconds since this was made; never goes back."""
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
