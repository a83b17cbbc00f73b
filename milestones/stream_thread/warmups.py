"""`WarmUps`: finds warm-ups that have caught up, so that the thread can ask for a new assignment. (In KIP-441 a timer
asks for it.)

*Guarantees*: the thread asks for a new assignment at most once per assignment. A warm-up may still be a warm-up after
its request: the leader found that it had fallen behind, or its old owner hasn't released the task. Then the pause
before the next request gets longer each time.
*Assumes*: lags are records behind the changelogs' ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from milestones.common.records import TaskId

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 60_000


class WarmUps:
    """The warm-ups of one member. `tasks`: their ids."""

    def __init__(self, acceptable_lag: int) -> None:
        self._acceptable_lag = acceptable_lag
        self.tasks: frozenset[TaskId] = frozenset()
        self._asked = False
        self._next_ms: dict[TaskId, int] = {}
        self._pauses: dict[TaskId, int] = {}

    def assigned(self, tasks: frozenset[TaskId]) -> None:
        """Set the warm-ups of a new assignment."""
        self.tasks, self._asked = tasks, False
        for task in self._pauses.keys() - tasks:
            del self._pauses[task], self._next_ms[task]

    @property
    def waiting(self) -> bool:
        """True if a call of `due` may find a warm-up that has caught up."""
        return bool(self.tasks) and not self._asked

    def due(self, lags: Mapping[TaskId, int], now_ms: int) -> list[TaskId]:
        """Return the warm-ups that have caught up and whose pause is over. If there are any, the caller should ask for
        a rebalance now."""
        caught_up = [task for task in sorted(self.tasks) if task in lags and lags[task] <= self._acceptable_lag]
        due = [task for task in caught_up if now_ms >= self._next_ms.get(task, now_ms)]
        if due:
            self._asked = True
        for task in caught_up if due else ():
            pause_ms = self._pauses.get(task, FIRST_PAUSE_MS)
            self._next_ms[task], self._pauses[task] = now_ms + pause_ms, min(2 * pause_ms, LONGEST_PAUSE_MS)
        return due
