"""Windows of time: which windows a record belongs to, and how long a window accepts late records.

| class | windows | Kafka Streams |
|---|---|---|
| `TimeWindows` | windows of one size; a new one begins every `advance` (tumbling, hopping) | `TimeWindows` |
| `SlidingWindows` | windows of all records that are at most `difference` apart | `SlidingWindows` |
| `SessionWindows` | windows of records with no gap longer than `gap` between them | `SessionWindows` |
| `UnlimitedWindows` | one window without an end, from `start` on | `UnlimitedWindows` |

*Guarantees*: immutable. Times are checked when a value is made.
*Assumes*: durations are `timedelta`s or ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from milestones.common.errors import TopologyError
from milestones.common.windowed import FOREVER

Duration: TypeAlias = "timedelta | int"
"""A time span: a `timedelta`, or a number of ms."""


def milliseconds(duration: Duration, what: str, *, least: int | None = 0) -> int:
    """Convert a duration to ms. Raises `TopologyError`, with `what` in its text, if the duration is less than `least`.
    If `least` is None, every duration is allowed."""
    found = duration // timedelta(milliseconds=1) if isinstance(duration, timedelta) else duration
    if isinstance(found, bool) or not isinstance(found, int):
        raise TopologyError(f"{what} must be a timedelta or a number of ms, not {duration!r}")
    if least is not None and found < least:
        raise TopologyError(f"{what} must be at least {least} ms, not {duration!r}")
    return found


@dataclass(frozen=True)
class TimeWindows:
    """Windows [start, start + size). A new window begins every `advance`. By default `advance` is `size`, so that each
    record is in one window. `grace`: how long after its end a window accepts late records, measured by the timestamps
    of the records."""

    size: Duration
    grace: Duration = field(kw_only=True)
    advance: Duration | None = field(default=None, kw_only=True)

    size_ms: int = field(init=False)
    grace_ms: int = field(init=False)
    advance_ms: int = field(init=False)

    def __post_init__(self) -> None:
        size_ms = milliseconds(self.size, "the size of a window", least=1)
        advance_ms = size_ms if self.advance is None else milliseconds(self.advance, "a window's advance", least=1)
        if advance_ms > size_ms:
            raise TopologyError(
                f"windows of {size_ms} ms that advance by {advance_ms} ms would leave records out: advance by the size "
                "at most"
            )
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "advance_ms", advance_ms)
        object.__setattr__(self, "grace_ms", milliseconds(self.grace, "a window's grace"))

    def starts(self, timestamp: int) -> Sequence[int]:
        """Return the starts of the windows that a record of this time belongs to, in ascending order."""
        advance_ms = self.advance_ms
        if advance_ms == self.size_ms:  # one window
            return (timestamp - timestamp % advance_ms,)
        first = max(0, timestamp - self.size_ms + advance_ms) // advance_ms * advance_ms
        return range(first, timestamp + 1, advance_ms)


@dataclass(frozen=True)
class UnlimitedWindows:
    """One window that begins at `start` (ms since the epoch) and never ends. Earlier records are in no window."""

    start: int = 0

    def __post_init__(self) -> None:
        if self.start < 0:
            raise TopologyError(f"an unlimited window can't start at {self.start}: times are not negative")

    @property
    def grace_ms(self) -> int:
        """0: no record is late, as the window never ends."""
        return 0

    @property
    def size_ms(self) -> int:
        """The ms from the start to the end of time."""
        return FOREVER - self.start

    def starts(self, timestamp: int) -> tuple[int, ...]:
        """Return the start of the window if a record of this time is in it, else nothing."""
        return (self.start,) if timestamp >= self.start else ()


@dataclass(frozen=True)
class SlidingWindows:
    """Windows of all records that are at most `difference` apart, both ends included. `grace`: as in `TimeWindows`."""

    difference: Duration
    grace: Duration = field(kw_only=True)

    difference_ms: int = field(init=False)
    grace_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "difference_ms", milliseconds(self.difference, "the difference of sliding windows", least=1)
        )
        object.__setattr__(self, "grace_ms", milliseconds(self.grace, "a window's grace"))


@dataclass(frozen=True)
class SessionWindows:
    """Sessions: records of one key, with no gap longer than `gap` between one and the next. `grace`: as in
    `TimeWindows`."""

    gap: Duration
    grace: Duration = field(kw_only=True)

    gap_ms: int = field(init=False)
    grace_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap_ms", milliseconds(self.gap, "the gap between sessions"))
        object.__setattr__(self, "grace_ms", milliseconds(self.grace, "a window's grace"))
