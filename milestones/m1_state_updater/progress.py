"""Calculates the progress of restorations: numbers per store for metrics, and one line for the log.

*Guarantees*: pure arithmetic. A rate is that of the last `WINDOW_MS`.
*Assumes*: the caller asks about once a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milestones.common.clock import duration

if TYPE_CHECKING:
    from milestones.common.records import TaskId

WINDOW_MS = 10_000
MOST_NAMED = 4
"""The most stores that one log line names."""


@dataclass(frozen=True)
class StoreRestoreProgress:
    """The progress of one store: records left, estimated bytes left, and records per second. `seconds_left` is None
    while no records come."""

    task: TaskId
    store: str
    restored: int
    records_left: int
    bytes_left: int
    rate: float

    @property
    def seconds_left(self) -> float | None:
        return self.records_left / self.rate if self.rate else None

    @property
    def percent(self) -> float:
        whole = self.restored + self.records_left
        return 100 * self.restored / whole if whole else 100.0


class RestoreRate:
    """Calculates records per second from a counter."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()

    def per_second(self, now_ms: int, count: int) -> float:
        """Return the present rate; 0 at the first call."""
        marks = self._marks
        if marks and count < marks[-1][1]:  # the counter has begun anew at 0
            marks.clear()
        marks.append((now_ms, count))
        while len(marks) > 2 and marks[1][0] <= now_ms - WINDOW_MS:
            marks.popleft()
        then_ms, then = marks[0]
        return (count - then) * 1000 / (now_ms - then_ms) if now_ms > then_ms else 0.0


def line(restoring: Collection[StoreRestoreProgress], lags: Collection[int]) -> str:
    """Return one line about all stores that are restored, and how far standbys are behind. The line names the stores
    that will take longest."""
    parts: list[str] = []
    if restoring:
        records, rate = sum(one.records_left for one in restoring), sum(one.rate for one in restoring)
        size, tasks = sum(one.bytes_left for one in restoring), len({one.task for one in restoring})
        left = f", {duration(records / rate)} left" if rate else ""
        parts.append(
            f"restoring {len(restoring)} stores of {tasks} tasks: {records:,} records (about {size / 1e6:,.1f} MB) "
            f"to go at {rate:,.0f}/s{left}"
        )
        largest = sorted(restoring, key=lambda one: (-one.records_left, one.task, one.store))
        parts += [f"{one.task} {one.store} {one.percent:.0f} %" for one in largest[:MOST_NAMED]]
        if len(largest) > MOST_NAMED:
            parts.append(f"and {len(largest) - MOST_NAMED} more")
    if lags:
        parts.append(f"{len(lags)} standbys are {sum(lags):,} records behind")
    return "; ".join(parts)
