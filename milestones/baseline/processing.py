"""Processing of the baseline: the stream thread calls the topology itself.

*Guarantees*: each ready task gets its turn in every round; turns shrink until a round fits its time slice; nothing of
a paused task is called. A task without input costs nothing, until one of its punctuations is due.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from milestones.common.records import TaskId
from milestones.common.task.alarms import PunctuationAlarms
from milestones.common.task.input import nobody_listens
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

    *Owns*: the tasks between `add` and `remove`; which of them may have input, which may be called (`_going`), which
    have changed.
    """

    high_watermark = 0

    def __init__(self, context: ThreadContext) -> None:
        self._clock = context.clock
        self._tasks: dict[TaskId, Task] = {}
        self._paused: frozenset[int] = frozenset()
        self._new: list[Task] = []
        self._going: dict[TaskId, Task] = {}
        self._fed: dict[TaskId, Task] = {}
        self._changed: dict[Task, None] = {}
        self._to_flush: dict[TaskId, Task] = {}
        self._alarms = PunctuationAlarms(context.clock)
        self._retiring: deque[tuple[Task, CloseMode]] = deque()
        self._held = False
        self._turn = 1
        self.processed = 0

    def add(self, task: Task) -> None:
        self._tasks[task.id] = task
        self._new.append(task)
        self._changed[task] = None
        task.input.on_arrival = partial(self._fed.__setitem__, task.id, task)

    def remove(self, task: TaskId, close_mode: CloseMode) -> None:
        removed = self._tasks.pop(task)
        removed.input.on_arrival = nobody_listens
        self._new = [new for new in self._new if new is not removed]
        self._going.pop(task, None)
        for kept in (self._fed, self._to_flush):
            kept.pop(task, None)
        self._alarms.forget(task)
        self._changed[removed] = None
        self.retire(removed, close_mode)

    def retire(self, task: Task, close_mode: CloseMode) -> None:
        self._retiring.append((task, close_mode))

    def take_changed(self) -> Collection[Task]:
        changed, self._changed = self._changed, {}
        return changed

    def places(self) -> dict[TaskId, str]:
        return {}

    def hold(self, held: bool) -> None:
        """While this holds nothing is processed, nor punctuated."""
        self._held = held

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Leave the tasks of these sub-topologies, and only of these, alone (KIP-834)."""
        self._paused = subtopologies
        self._going.clear()
        for task in self._tasks.values():
            self._alarms.forget(task.id)
            if task.initialised:
                self._let_go_on(task)

    def _let_go_on(self, task: Task) -> None:
        if task.id.subtopology not in self._paused:
            self._going[task.id] = task
            self._alarms.set_at_once(task)

    def _worked(self, task: Task) -> None:
        """Something was called that may have scheduled a punctuation, changed the task, or put into its caches."""
        self._changed[task] = None
        self._to_flush[task.id] = task
        self._alarms.set(task)

    def _initialise(self) -> None:
        while self._new:
            task = self._new[0]
            task.initialise()
            self._new.pop(0)
            self._fed[task.id] = task
            self._worked(task)
            self._let_go_on(task)

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
        return self._punctuate() or self.processed > before

    def _round(self) -> int:
        """One turn for each task with input; how many records it were. Slow records make the next turns shorter.

        A list of its own: a task may be taken away by what a round calls."""
        now_ms, before = self._clock.monotonic_ms(), self.processed
        for id, task in list(self._fed.items()):
            if id in self._going:
                self._take_turn(task, now_ms)
        return self.processed - before

    def _take_turn(self, task: Task, now_ms: int) -> None:
        try:
            done = task.process(self._turn, now_ms)
        finally:
            self._worked(task)
        self.processed += done
        if not done and not task.input.waiting():
            self._fed.pop(task.id, None)

    def _punctuate(self) -> bool:
        """Call what the wall clock makes due; whether there was anything."""
        called = False
        for id in self._alarms.ring():
            task = self._going.get(id)
            if task is not None:
                try:
                    called |= task.punctuate(self._clock.wall_ms())
                finally:
                    self._worked(task)
        return called

    def _adapt(self, took_ms: int) -> None:
        if took_ms > SLICE_MS:
            self._turn = max(1, self._turn // 2)
        elif took_ms < SLICE_MS // 2:
            self._turn = min(MOST_RECORDS, self._turn * 2)

    def should_fetch(self, timeout_ms: int) -> bool:
        return True

    def prepare_commit(self, now_ms: int, patience_ms: int = PREPARE_MS, *, final: bool = False) -> bool:
        while self._to_flush:
            id, task = next(iter(self._to_flush.items()))
            task.flush()
            self._worked(task)
            del self._to_flush[id]
        return True

    def unlock(self) -> None:
        """Do nothing: no task is locked."""

    def apply(self, task: Task) -> None:
        task.apply()
        self._changed[task] = None

    def close(self, timeout_ms: int) -> None:
        """Nothing is in transit."""

    def wake_up_ms(self, now_ms: int) -> int | None:
        return None if self._held else self._alarms.next_in_ms()
