"""Processing of the baseline: the stream thread calls the topology itself.

*Guarantees*: each ready task gets its turn in every round; turns shrink until a round fits its time slice; nothing of
a paused task is called.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from milestones.common.records import TaskId
from milestones.parts import PREPARE_MS, CloseMode, RemovedTask

if TYPE_CHECKING:
    from milestones.common.task.task import Task, TaskStorage
    from milestones.instance.context import ThreadContext

log = logging.getLogger(__name__)

SLICE_MS = 50
"""How long a call should take, so that polling and committing go on; one record may take longer."""

MOST_RECORDS = 500
"""Records of one task in one turn, at most."""


def retired(task: Task, close_mode: CloseMode) -> RemovedTask:
    """The task as its close mode leaves it, a closed one with its open stores; an error, logged, comes along."""
    if close_mode is CloseMode.SUSPEND:
        return RemovedTask(task)
    failures: list[BaseException] = []
    stores: TaskStorage | None = None
    try:
        task.end()
    except BaseException as error:
        failures.append(error)
    try:
        stores = task.recycle()
    except BaseException as error:
        failures.append(error)
    for failure in failures:
        log.error("task %s didn't close cleanly", task.id, exc_info=failure)
    return RemovedTask(task, stores, failures[0] if failures else None)


class InlineProcessing:
    """The tasks that are ready, processed in rounds.

    *Owns*: the tasks between `add` and `remove`.
    """

    high_watermark = 0

    def __init__(self, context: ThreadContext) -> None:
        self._clock = context.clock
        self._tasks: dict[TaskId, Task] = {}
        self._paused: frozenset[int] = frozenset()
        self._new: list[Task] = []
        self._going: list[Task] = []
        self._retiring: deque[tuple[Task, CloseMode]] = deque()
        self._held = False
        self._turn = 1
        self.processed = 0

    def add(self, task: Task) -> None:
        self._tasks[task.id] = task
        self._new.append(task)

    def remove(self, task: TaskId, close_mode: CloseMode) -> None:
        removed = self._tasks.pop(task)
        self._new = [new for new in self._new if new is not removed]
        self._choose()
        self.retire(removed, close_mode)

    def retire(self, task: Task, close_mode: CloseMode) -> None:
        self._retiring.append((task, close_mode))

    def hold(self, held: bool) -> None:
        """While this holds nothing is processed, nor punctuated."""
        self._held = held

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Leave the tasks of these sub-topologies, and only of these, alone (KIP-834)."""
        self._paused = subtopologies
        self._choose()

    def _choose(self) -> None:
        """A list of its own: a task may be taken away by what a round calls."""
        self._going = [
            task for task in self._tasks.values() if task.initialised and task.id.subtopology not in self._paused
        ]

    def _initialise(self) -> None:
        while self._new:
            self._new[0].initialise()
            self._new.pop(0)
            self._choose()

    def take_removed(self) -> list[RemovedTask]:
        """One at a time, after its fate: closing its stores takes time, which the caller may need for other tasks."""
        return [retired(*self._retiring.popleft())] if self._retiring else []

    def run_once(self, now_ms: int) -> bool:
        """Initialise new tasks; rounds over all until the slice is over or nothing is left; punctuations that are due.

        What was fetched is worked off where time allows: a partition that fills up is paused, which throws away what
        the client has prefetched.
        """
        self._initialise()
        if self._held:
            return False
        before, begun_ms = self.processed, now_ms
        while self._round():
            ended_ms = self._clock.monotonic_ms()
            self._adapt(ended_ms - begun_ms)
            if ended_ms - now_ms >= SLICE_MS:
                break
            begun_ms = ended_ms
        wall_ms = self._clock.wall_ms()
        punctuated = [task.punctuate(wall_ms) for task in self._going]
        return self.processed > before or any(punctuated)

    def _round(self) -> int:
        """One turn for each task; how many records it were. Slow records make the next turns shorter."""
        now_ms, before = self._clock.monotonic_ms(), self.processed
        for task in self._going:
            self.processed += task.process(self._turn, now_ms)
        return self.processed - before

    def _adapt(self, took_ms: int) -> None:
        if took_ms > SLICE_MS:
            self._turn = max(1, self._turn // 2)
        elif took_ms < SLICE_MS // 2:
            self._turn = min(MOST_RECORDS, self._turn * 2)

    def should_fetch(self, timeout_ms: int) -> bool:
        return True

    def prepare_commit(self, now_ms: int, patience_ms: int = PREPARE_MS, *, final: bool = False) -> bool:
        for task in self._tasks.values():
            task.flush()
        return True

    def committed(self) -> None:
        """All go on anyway."""

    def apply(self, task: Task) -> None:
        task.apply()

    def close(self, timeout_ms: int) -> None:
        """Nothing is in transit."""

    def wake_up_ms(self, now_ms: int) -> int | None:
        if self._held:
            return None
        due = [at for task in self._going if (at := task.next_punctuation_ms()) is not None]
        return max(0, min(due) - self._clock.wall_ms()) if due else None
