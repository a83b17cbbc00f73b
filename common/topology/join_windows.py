"""`JoinWindows`: how far apart in time two joined records may be, and how long late records are accepted.

*Guarantees*: immutable. Times are checked when a value is made.
*Assumes*: durations are `timedelta`s or ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from milestones.common.errors import TopologyError
from milestones.common.topology.windows import Duration, milliseconds


@dataclass(frozen=True, init=False)
class JoinWindows:
    """The time span in which a record finds its partners. A record of the left stream is joined with those records of
    the right stream that are at most `before` older and at most `after` newer, both ends included. `after` is `before`
    by default. Durations are `timedelta`s or numbers of ms.

    `grace`: how long a record waits for late partners after the end of its window, measured by the timestamps of the
    records. After that, a left or an outer join sends it without a partner. `before` may be negative: then all partners
    are newer. `after` may be negative: then all partners are older.
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    def __init__(
        self, before: Duration, after: Duration | None = None, *, grace: Duration
    ) -> None:
        before_ms = milliseconds(before, "the time before a record", least=None)
        after_ms = before_ms if after is None else milliseconds(after, "the time after a record", least=None)
        grace_ms = milliseconds(grace, "the grace of a join")
        if after is None and before_ms < 0:
            raise TopologyError(f"records can't be {before!r} apart: give JoinWindows a difference of at least 0 ms")
        if before_ms + after_ms < 0:
            raise TopologyError(
                f"a join's window from {before!r} before a record to {after!r} after it ends before it begins: their "
                "sum must not be negative"
            )
        for name, value in (("before_ms", before_ms), ("after_ms", after_ms), ("grace_ms", grace_ms)):
            object.__setattr__(self, name, value)

    def before(self, difference: Duration) -> JoinWindows:
        """Return a copy of these windows with another `before`."""
        return JoinWindows(difference, self.after_ms, grace=self.grace_ms)

    def after(self, difference: Duration) -> JoinWindows:
        """Return a copy of these windows with another `after`."""
        return JoinWindows(self.before_ms, difference, grace=self.grace_ms)

    @property
    def size_ms(self) -> int:
        """The length of the window."""
        return self.before_ms + self.after_ms
