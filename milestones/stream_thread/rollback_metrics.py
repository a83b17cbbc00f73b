"""The cost of roll-backs, for metrics.

*Guarantees*: the time of a roll-back ends when the last of its tasks processes again, or is gone.
*Assumes*: one owner, the thread that has the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

from milestones.common.clock import Clock
from milestones.common.records import TaskId


class RollBacks:
    """`count`, `records` that were processed in vain, `ms` until their tasks processed again."""

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
        """Note that a task is processed again, or gone. Tasks that weren't rolled back don't count."""
        if task in self._away:
            self._away.remove(task)
            if not self._away:
                self.ms += self._clock.monotonic_ms() - self._began_ms
