"""When to look at which task again, by one clock.

*Guarantees*: a task has one alarm, the earliest that was set; it rings once. Setting and ringing cost log n. Nothing is
kept of a task that is forgotten but its id.
*Assumes*: whoever is rung looks for itself, and sets the next alarm: an alarm that was set too early does no harm.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.records import TaskId


class Alarms:
    """*Owns*: a time for each task that has one, ms of whichever clock."""

    def __init__(self) -> None:
        self._set: dict[TaskId, int] = {}
        self._heap: list[tuple[int, TaskId]] = []

    def set(self, id: TaskId, at_ms: int) -> None:
        """Ring at `at_ms`, or earlier if that was asked for before."""
        if at_ms < self._set.get(id, at_ms + 1):
            self._set[id] = at_ms
            heapq.heappush(self._heap, (at_ms, id))

    def forget(self, id: TaskId) -> None:
        self._set.pop(id, None)

    def ring(self, now_ms: int) -> list[TaskId]:
        """The tasks whose time has come."""
        due: list[TaskId] = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, id = heapq.heappop(self._heap)
            if self._set.get(id) == at_ms:
                del self._set[id]
                due.append(id)
        return due

    def next_ms(self) -> int | None:
        """When the next one rings, None without any."""
        while self._heap and self._set.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
