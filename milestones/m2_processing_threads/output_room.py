"""`OutputRoom`: limits the bytes of outputs that each task may hold while they wait to be sent, or to be confirmed.

    room:  |<------------ three quarters, lent to the tasks that need them ------------>| part | part | part | ...

*Guarantees*: all tasks together hold the bytes of the room at most, plus the outputs of one batch for each task. A task
that holds less than its part of the last quarter waits for no other task.
*Assumes*: the caller holds the scheduler's lock. `most` needs no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from milestones.common.task.task import Task


class OutputRoom:
    """*Owns*: the bytes that each task held at the last look at it.

    *Concurrency*: any thread may call `most`, which reads a dictionary entry and a number."""

    def __init__(self, part: Callable[[int], int]) -> None:
        """`part(among)`: the bytes of the room divided by `among`, as in `MemoryShare.part`."""
        self._part_among = part
        self._held: dict[Task, int] = {}
        self._total = 0

    def add(self, task: Task) -> None:
        self._held[task] = 0
        self.look_at(task)

    def remove(self, task: Task) -> None:
        self._total -= self._held.pop(task)

    def look_at(self, task: Task, held: int | None = None) -> None:
        """Note how many bytes the task holds. `held`: the bytes, if the caller has just counted them."""
        held = task.output_bytes() if held is None else held
        self._total += held - self._held[task]
        self._held[task] = held

    def look_at_all(self) -> None:
        """Count all tasks anew, as outputs have been sent or confirmed. Does nothing while half of the room is free."""
        if self._total > self._size // 2:
            for task in self._held:
                self.look_at(task)

    @property
    def _size(self) -> int:
        return self._part_among(1)

    def _part(self) -> int:
        """Return a task's part of the last quarter."""
        return self._part_among(4 * len(self._held))

    def most(self, task: Task, threads: int) -> int:
        """Return the bytes of outputs at which `task` must wait: its guaranteed part, or what it holds plus an equal
        share of the free pool. There are `threads` shares, one for each thread that works on a task."""
        left = self._size * 3 // 4 - self._total
        return max(self._part(), self._held.get(task, 0) + left // max(1, threads))

    def next(self) -> int:
        """Return the bytes that a task may add at least, after it had to wait and has got room."""
        return self._part() // 2

    def has_room(self, task: Task) -> bool:
        """Return True if a full task may continue: half of all the room is free, or half of the task's own part."""
        return self._total <= self._size // 2 or self._held[task] <= self._part() // 2
