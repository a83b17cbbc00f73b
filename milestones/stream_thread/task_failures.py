"""The failures of tasks, one by one: noted where they are found, told to the part that decides about them.

*Guarantees*: a failure is noted once for each time that its task is opened; what is found together is noted before any
of it is told.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milestones.common.clock import Clock
from milestones.stream_thread.task_registry import TaskRegistry

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.parts import TaskEnds
    from milestones.stream_thread.task_registry import AssignedTask

log = logging.getLogger(__name__)

FIRST_PAUSE_MS, LONGEST_PAUSE_MS, SERIES_MS = 1_000, 60_000, 600_000
"""Before a task that has ended is opened anew: longer each time, unless the last time is so long ago."""


@dataclass(eq=False)
class TaskFailed:
    """Why a task is given up. `void`: what it has done since its last commit mustn't be committed. `again_ms`: when it
    is opened anew; None: it isn't, or that isn't decided yet."""

    error: BaseException
    void: bool = False
    again_ms: int | None = None


class TaskFailures:
    """*Owns*: the failures that aren't told yet; which tasks are to be given up; how long ended tasks wait."""

    def __init__(self, registry: TaskRegistry, ends: TaskEnds, clock: Clock) -> None:
        self._registry, self._ends, self._clock = registry, ends, clock
        self._untold: list[tuple[TaskId, BaseException, bool]] = []
        self._to_give_up: dict[TaskId, AssignedTask] = {}
        self._pauses: dict[TaskId, tuple[int, int]] = {}

    def note(self, id: TaskId, error: BaseException, *, void: bool = False) -> None:
        """The task has failed of this; `tell` is to follow."""
        self._untold.append((id, error, void))

    def tell(self) -> None:
        """Have the noted failures decided about. Raises what ends the thread, or what the thread recovers from: all
        failures of the same call come to an end with that."""
        untold, self._untold = self._untold, []
        for id, error, void in untold:
            entry = self._registry.get(id)
            owned = entry is not None and entry.role is not None
            if owned and entry is not None and entry.failure is not None:
                continue
            self._ends.fail(id, error, owned=owned)
            if owned and entry is not None:
                entry.failure = TaskFailed(error, void)
                self._to_give_up[id] = entry

    def to_give_up(self) -> Iterator[AssignedTask]:
        """The tasks that have failed and haven't been given up yet."""
        for id, entry in list(self._to_give_up.items()):
            if entry.failure is None or self._registry.get(id) is not entry:
                del self._to_give_up[id]
            else:
                yield entry

    def given_up(self, entry: AssignedTask) -> None:
        self._to_give_up.pop(entry.id, None)

    def decide(self) -> None:
        """Note what is to become of ended tasks. `DecidedError`."""
        for decision in self._ends.take_decided():
            entry = self._registry.get(decision.task)
            if entry is None or entry.failure is None or not decision.again:
                continue
            entry.failure.again_ms = self._next_try_ms(entry.id)

    def _next_try_ms(self, id: TaskId) -> int:
        now_ms = self._clock.monotonic_ms()
        pause_ms, before_ms = self._pauses.get(id, (0, now_ms))
        if now_ms - before_ms > SERIES_MS:
            pause_ms = 0
        pause_ms = max(FIRST_PAUSE_MS, min(2 * pause_ms, LONGEST_PAUSE_MS))
        self._pauses[id] = pause_ms, now_ms
        log.info("task %s is opened anew in %d ms", id, pause_ms)
        return now_ms + pause_ms

    def forget(self, id: TaskId) -> None:
        """The task isn't failed any more: it has another role, or is gone."""
        self._pauses.pop(id, None)
        self._to_give_up.pop(id, None)
        self._ends.forget(id)
