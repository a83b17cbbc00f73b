"""Which tasks have got input since the last look, and which have some that waits.

*Guarantees*: a record that was added is seen by the next look, whatever threads take meanwhile: a partition whose last
record is another one than before has got some. A task without input costs a comparison per look, and nothing else.
*Assumes*: driven by the thread that adds records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.buffers import InputRecord
    from milestones.common.task.task import Task


class Arrivals:
    """*Owns*: the last record seen of each partition, None while it has none: no record is kept for longer than until
    the next look; the tasks that may have input."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, Task] = {}
        self._fed: dict[TaskId, Task] = {}
        self._ids: list[TaskId] = []
        self._queues: list[deque[InputRecord]] = []
        self._last: list[InputRecord | None] = []

    def add(self, task: Task) -> None:
        self._tasks[task.id] = self._fed[task.id] = task
        for buffer in task.input.buffers.values():
            self._ids.append(task.id)
            self._queues.append(buffer.messages)
            self._last.append(None)

    def remove(self, id: TaskId) -> None:
        del self._tasks[id]
        self._fed.pop(id, None)
        kept = [number for number, other in enumerate(self._ids) if other != id]
        self._ids = [self._ids[number] for number in kept]
        self._queues = [self._queues[number] for number in kept]
        self._last = [self._last[number] for number in kept]

    def look(self) -> set[TaskId]:
        """The tasks that have got input since the last look."""
        arrived: set[TaskId] = set()
        for number, last in self._changed():
            self._last[number] = last
            if last is not None:
                arrived.add(self._ids[number])
        for id in arrived:
            self._fed[id] = self._tasks[id]
        return arrived

    def _changed(self) -> list[tuple[int, InputRecord | None]]:
        """The partitions whose last record is another one than before, or none."""
        while True:
            pairs = enumerate(zip(self._queues, self._last, strict=True))
            try:
                return [(n, last) for n, (q, seen) in pairs if (last := q[-1] if q else None) is not seen]
            except IndexError:  # a thread has taken the last record in between
                continue

    def waiting(self) -> Iterator[tuple[Task, int]]:
        """The tasks with input, as of the last look, and how many records each has."""
        for id, task in list(self._fed.items()):
            count = task.input.waiting()
            if count:
                yield task, count
            else:
                del self._fed[id]
