"""Counts what roll-backs cost, for metrics.

*Guarantees*: the time of a roll-back ends when the last of its tasks is processed once more, or is gone.
*Assumes*: one owner, the thread that has the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

from milestones.common.clock import Clock
from milestones.common.records import TaskId


class RollBacks:
    """`count`: the number of roll-backs. `records`: the number of records whose processing was undone. `ms`: the total
    time from a roll-back until all rolled-back tasks are processed once more, or are gone."""

    count: int
    records: int
    ms: int

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._away: set[TaskId] = set()
        self._began_ms = 0
        self.count = self.records = self.ms = 0

    def began(self, tasks: Iterable[TaskId]) -> None:
        self.count += 1
        if not self._away:
            self._began_ms = self._clock.monotonic_ms()
        self._away.update(tasks)

    def rolled_back(self, records: int) -> None:
        self.records += records

    def is_back(self, task: TaskId) -> None:
        """Record that a task is processed once more after its roll-back, or is gone. Does nothing for a task that
        wasn't rolled back."""
        if task in self._away:
            self._away.remove(task)
            if not self._away:
                self.ms += self._clock.monotonic_ms() - self._began_ms
