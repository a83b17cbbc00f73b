"""`Arrivals` knows which tasks have got input since the last look, and which have waiting input.

*Guarantees*: the next look sees every record that was added, even if threads take records meanwhile. A task without
input costs nothing.
*Assumes*: the thread that adds records makes all calls. `TaskInput` calls `on_arrival` once records are in their
buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from milestones.common.task.input import nobody_listens

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task


class Arrivals:
    """*Owns*: the tasks that have got input since the last look, and those that may have waiting input."""

    def __init__(self) -> None:
        self._fed: dict[TaskId, Task] = {}
        self._arrived: set[TaskId] = set()

    def add(self, task: Task) -> None:
        task.input.on_arrival = partial(self._note, task)
        if task.input.waiting():
            self._note(task)

    def _note(self, task: Task) -> None:
        self._fed[task.id] = task
        self._arrived.add(task.id)

    def remove(self, task: Task) -> None:
        task.input.on_arrival = nobody_listens
        self._fed.pop(task.id, None)
        self._arrived.discard(task.id)

    def look(self) -> set[TaskId]:
        """Return the tasks that have got input since the last look."""
        arrived, self._arrived = self._arrived, set()
        return arrived

    def waiting(self) -> Iterator[tuple[Task, int]]:
        """Yield the tasks that have input, each with its number of records."""
        for id, task in list(self._fed.items()):
            count = task.input.waiting()
            if count:
                yield task, count
            else:
                del self._fed[id]
