"""`Alarms` stores the times at which tasks must be checked, by one clock.

*Guarantees*: a task has one alarm, the earliest that was set, and it rings once. Setting and ringing cost log n. Of a
task whose alarm was removed, only the id is kept.
*Assumes*: the owner checks a task whose alarm rings, and sets the next alarm. So an alarm that is too early does no
harm.
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
        """Remove the alarms whose time has come, and return their tasks."""
        due: list[TaskId] = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, id = heapq.heappop(self._heap)
            if self._set.get(id) == at_ms:
                del self._set[id]
                due.append(id)
        return due

    def next_ms(self) -> int | None:
        """Return the time at which the next alarm rings. None if there is no alarm."""
        while self._heap and self._set.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def ring_all(self) -> list[TaskId]:
        """Remove all alarms, because the clock was put back, and return their tasks."""
        due = list(self._set)
        self._set.clear()
        self._heap.clear()
        return due


class PunctuationAlarms:
    """The times at which the wall clock makes punctuations of tasks due.

    *Owns*: an alarm for each task that has a wall-clock punctuation; the last reading of the clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._alarms = clock, Alarms()
        self._wall_ms = clock.wall_ms()

    def set(self, task: Task) -> None:
        """Ring when the task's next punctuation is due."""
        due_ms = task.next_punctuation_ms()
        if due_ms is not None:
            self._alarms.set(task.id, due_ms)

    def set_at_once(self, task: Task) -> None:
        """Ring at the next call of `ring`, if the task has a wall-clock punctuation. The clock may have been put back
        since the task was checked last, so that its punctuations must follow it."""
        if task.next_punctuation_ms() is not None:
            self._alarms.set(task.id, self._wall_ms)

    def forget(self, id: TaskId) -> None:
        self._alarms.forget(id)

    def ring(self) -> list[TaskId]:
        """Return the tasks that may have a punctuation that is due. If the clock was put back, return all tasks with an
        alarm, as their punctuations must follow the clock."""
        before_ms, self._wall_ms = self._wall_ms, self._clock.wall_ms()
        return self._alarms.ring_all() if self._wall_ms < before_ms else self._alarms.ring(self._wall_ms)

    def next_in_ms(self) -> int | None:
        """Return the time until the next alarm rings. None if there is no alarm."""
        next_ms = self._alarms.next_ms()
        return None if next_ms is None else max(0, next_ms - self._clock.wall_ms())
