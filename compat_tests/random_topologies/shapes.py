"""What an end of a path may be that looks at time or at another source: windows, and joins. As data.

*Guarantees*: immutable.
*Assumes*: times are ms. `plans.py` refuses what can't work.
"""

from __future__ import annotations

from dataclasses import dataclass

COUNT, MOST, LETTERS = "windowed-count", "windowed-most", "windowed-letters"
WINDOWED = (COUNT, MOST, LETTERS)
"""Windows are counted, reduced to their greatest value, or aggregated to the letters of their values, in order. None of
it depends on the order of the records, so that what a window ends with is known however partitions were merged."""

STREAMS, TO_TABLE, TABLES = "join-streams", "join-table", "join-tables"
JOINED = (STREAMS, TO_TABLE, TABLES)
"""A stream with a stream, a stream with a table, a table with a table."""
SHAPED = (*WINDOWED, *JOINED)

TUMBLING, HOPPING, SLIDING, SESSION = KINDS = ("tumbling", "hopping", "sliding", "session")
HOWS = ("inner", "left", "outer")

LATE_MS = 100
"""No record of a random case is further behind the newest one of its partition."""
SKEW_MS = 20 * 60_000
"""How far apart in time a task may meet records of several partitions, or topics, of the same round."""
LEAP_MS = 30 * 60_000
"""By how much the time of the inputs leaps from one round to the next: more than any window and its grace. Between two
rounds all that has come is processed."""


@dataclass(frozen=True)
class Windows:
    """`size`: of a window, the difference of sliding ones, the gap of sessions; `advance`: of hopping ones. `on_close`:
    a window is emitted when it closes."""

    kind: str
    size: int
    grace: int = 0
    advance: int = 0
    on_close: bool = False


@dataclass(frozen=True)
class Join:
    """With the source `other`, on the right. `before`, `after`, `grace`: of streams, as `JoinWindows` has them."""

    other: int
    how: str = "inner"
    before: int = 0
    after: int = 0
    grace: int = 0

    @property
    def left_alone(self) -> bool:
        return self.how != "inner"

    @property
    def right_alone(self) -> bool:
        return self.how == "outer"
