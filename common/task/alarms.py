"""`Alarms`: the times at which tasks are looked at again, by one clock.

*Guarantees*: a task has one alarm, the earliest that was set; it rings once. Setting and ringing cost log n. Of a
forgotten task only the id is kept.
*Assumes*: the owner looks at a task whose alarm rings, and sets the next one: an alarm that is too early does no harm.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task


class Alarms:
    """*Owns*: the alarm of each task that has one, in ms of the clock."""

    def __init__(self) -> None:
        self._set: dict[TaskId, int] = {}
        self._heap: list[tuple[int, TaskId]] = []

    def set(self, id: TaskId, at_ms: int) -> None:
        """Ring at `at_ms`, or at an earlier time that is set already."""
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

    def ring_all(self) -> list[TaskId]:
        """All tasks that have an alarm: the clock was put back."""
        due = list(self._set)
        self._set.clear()
        self._heap.clear()
        return due


class PunctuationAlarms:
    """When the wall clock makes punctuations of tasks due.

    *Owns*: an alarm for each task that has a punctuation; when the clock was looked at last."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._alarms = clock, Alarms()
        self._wall_ms = clock.wall_ms()

    def set(self, task: Task) -> None:
        """Ring when the task's next punctuation is due."""
        due_ms = task.next_punctuation_ms()
        if due_ms is not None:
            self._alarms.set(task.id, due_ms)

    def set_at_once(self, task: Task) -> None:
        """Ring at the next look, if it has a punctuation: one that has to follow the clock, as that may have been put
        back since the task was looked at."""
        if task.next_punctuation_ms() is not None:
            self._alarms.set(task.id, self._wall_ms)

    def forget(self, id: TaskId) -> None:
        self._alarms.forget(id)

    def ring(self) -> list[TaskId]:
        """The tasks that may have a punctuation that is due; all of them when the clock was put back, since their
        punctuations have to follow it."""
        before_ms, self._wall_ms = self._wall_ms, self._clock.wall_ms()
        return self._alarms.ring_all() if self._wall_ms < before_ms else self._alarms.ring(self._wall_ms)

    def next_in_ms(self) -> int | None:
        """Until the next one rings, None without any."""
        next_ms = self._alarms.next_ms()
        return None if next_ms is None else max(0, next_ms - self._clock.wall_ms())
