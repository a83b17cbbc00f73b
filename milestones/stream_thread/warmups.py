"""Which warm-up has caught up, so that the group should assign anew: nothing probes on a timer (KIP-441 does).

*Guarantees*: at most one request per assignment. A warm-up for which one was made, and that is still one in the next
assignment (the leader sees it behind again, or its old owner has yet to let go), waits longer each time.
*Assumes*: lags are records behind the changelogs' ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from milestones.common.records import TaskId

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 60_000


class WarmUps:
    """The warm-ups of one member: `tasks`."""

    def __init__(self, acceptable_lag: int) -> None:
        self._acceptable_lag = acceptable_lag
        self.tasks: frozenset[TaskId] = frozenset()
        self._asked = False
        self._next_ms: dict[TaskId, int] = {}
        self._pauses: dict[TaskId, int] = {}

    def assigned(self, tasks: frozenset[TaskId]) -> None:
        """A new assignment has these warm-ups."""
        self.tasks, self._asked = tasks, False
        for task in self._pauses.keys() - tasks:
            del self._pauses[task], self._next_ms[task]

    @property
    def waiting(self) -> bool:
        """Whether it is worth the while to ask for `due`."""
        return bool(self.tasks) and not self._asked

    def due(self, lags: Mapping[TaskId, int], now_ms: int) -> list[TaskId]:
        """Those that have caught up, when a rebalance should be asked for now: the caller does."""
        caught_up = [task for task in sorted(self.tasks) if task in lags and lags[task] <= self._acceptable_lag]
        due = [task for task in caught_up if now_ms >= self._next_ms.get(task, now_ms)]
        if due:
            self._asked = True
        for task in caught_up if due else ():
            pause_ms = self._pauses.get(task, FIRST_PAUSE_MS)
            self._next_ms[task], self._pauses[task] = now_ms + pause_ms, min(2 * pause_ms, LONGEST_PAUSE_MS)
        return due
