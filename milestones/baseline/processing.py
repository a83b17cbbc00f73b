"""`InlineProcessing` is the processing of the baseline: the stream thread calls the topology itself.

*Guarantees*: ready tasks take turns. No task has a second turn before all others had their first. `run_once`
initialises tasks, processes records and punctuates, for `SLICE_MS` each; the last `init`, turn or punctuation may take
longer. A turn has as many records as fit into `TURN_MS`, by the time that earlier records took. So a turn gets long
only when records have become slow. A paused task isn't processed or punctuated. A new task is initialised, and caches
are flushed, even while the task is paused. A task without input costs nothing until one of its punctuations is due.
*Assumes*: the thread that owns the tasks makes all calls.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateBusyError
from milestones.common.records import TaskId
from milestones.common.task.alarms import Alarms, PunctuationAlarms
from milestones.common.task.input import nobody_listens
from milestones.parts import PREPARE_MS, CloseMode, Loop, RemovedTask
from milestones.shared_parts.retirement import retire

if TYPE_CHECKING:
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext

log: Final = logging.getLogger(__name__)

SLICE_MS = 50
"""The time after which the stream thread must poll and commit once more."""

TURN_MS = 10
"""The longest turn of a task, estimated by the time of its earlier records. One record may take longer."""

MOST_RECORDS = 500
"""The most records that one turn processes."""


class InlineProcessing:
    """Processes ready tasks in rounds.

    *Owns*: the tasks between `add` and `remove`. Some of them must be initialised (`_new`), may have input (`_fed`),
    may be called (`_going`), or have changed. `_limits` has the number of records in each task's next turn.
    """

    def __init__(self, context: ThreadContext) -> None:
        self._context, self._clock = context, context.clock
        self._tasks: dict[TaskId, Task] = {}
        self._paused: frozenset[int] = frozenset()
        self._new: dict[TaskId, Task] = {}
        self._going: dict[TaskId, Task] = {}
        self._fed: dict[TaskId, Task] = {}
        self._changed: dict[Task, None] = {}
        self._to_flush: dict[TaskId, Task] = {}
        self._alarms = PunctuationAlarms(context.clock)
        self._retiring: deque[tuple[Task, CloseMode]] = deque()
        self._limits: dict[TaskId, int] = {}
        self._waiting = Alarms()
        """The times at which tasks must write their confirmed commits."""
        self._held = False
        self._held_back: Set[TaskId] = frozenset()
        self.processed: int = 0

    def run_turn(self, loop: Loop) -> None:
        loop.run_once(self._clock.monotonic_ms())

    def may_wait_for_kafka(self) -> bool:
        """Return True: while a step of a commit waits, the thread has nothing else to do."""
        return True

    def take_back_loop(self) -> BaseException | None:
        """Do nothing, and return None: no other thread makes turns."""
        return None

    def add(self, task: Task) -> None:
        self._tasks[task.id] = self._new[task.id] = task
        self._limits[task.id] = 1
        self._changed[task] = None
        task.input.on_arrival = partial(self._fed.__setitem__, task.id, task)
        self._write_later(task)

    def remove(self, task: TaskId, close_mode: CloseMode) -> None:
        removed = self._tasks.pop(task)
        removed.input.on_arrival = nobody_listens
        del self._limits[task]
        for kept in (self._new, self._going, self._fed, self._to_flush):
            kept.pop(task, None)
        self._alarms.forget(task)
        self._changed[removed] = None
        self.retire(removed, close_mode)

    def retire(self, task: Task, close_mode: CloseMode) -> None:
        self._retiring.append((task, close_mode))

    def take_failed(self) -> Sequence[tuple[TaskId, BaseException]]:
        return ()

    def take_changed(self) -> Collection[Task]:
        changed, self._changed = self._changed, {}
        return changed

    def places(self) -> dict[TaskId, str]:
        return {}

    def failing(self) -> dict[TaskId, str]:
        """Return an empty dict: no task is retried."""
        return {}

    def hold_all(self, held: bool) -> None:
        """Stop or resume processing. While `held` is true, no record is processed and no punctuation runs."""
        self._held = held

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Pause the tasks of these sub-topologies, and no others (KIP-834)."""
        self._paused = subtopologies
        self._going.clear()
        for task in self._tasks.values():
            self._alarms.forget(task.id)
            if task.initialised:
                self._resume(task)

    def hold_tasks(self, tasks: Set[TaskId]) -> None:
        if tasks != self._held_back:
            self._held_back = tasks
            self.pause(self._paused)

    def at_rest(self, tasks: Set[TaskId]) -> bool:
        """Return True: the calling thread is the one that processes."""
        return True

    def _resume(self, task: Task) -> None:
        if task.id.subtopology not in self._paused and task.id not in self._held_back:
            self._going[task.id] = task
            self._alarms.set_at_once(task)

    def _worked(self, task: Task) -> None:
        """Note that user code was called. The call may have scheduled a punctuation, changed the task, or filled its
        caches."""
        self._changed[task] = None
        self._to_flush[task.id] = task
        self._alarms.set(task)

    def _initialise(self) -> bool:
        """Initialise new tasks. Returns True if some are left when the time is over."""
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        for task in list(self._new.values()):
            self._initialise_task(task)
            if self._clock.monotonic_ms() >= until_ms:
                break
        return bool(self._new)

    def _initialise_task(self, task: Task) -> None:
        task.initialise()
        del self._new[task.id]
        self._fed[task.id] = task
        self._worked(task)
        self._resume(task)

    def take_removed(self) -> list[RemovedTask]:
        """Close one removed task as its close mode says, and return it. Closing takes time, which the caller may need
        for other tasks, so that one call closes only one task."""
        return [retire(*self._retiring.popleft())] if self._retiring else []

    def run_once(self, now_ms: int) -> bool:
        """Take one step: 1. initialise new tasks; 2. process records in rounds, until the slice is over or none is
        left; 3. call punctuations that are due.

        As many fetched records are processed as the time allows. If a partition's buffer filled up, the partition would
        be paused, and the client would throw its prefetched records away.
        """
        more = self._initialise()
        self._write(now_ms)
        if self._held:
            return more
        before, until_ms = self.processed, self._clock.monotonic_ms() + SLICE_MS
        while self._round(until_ms):
            pass
        return self._punctuate() or more or self.processed > before

    def _write(self, now_ms: int) -> None:
        """Have tasks write confirmed commits that have waited long enough, as far as time allows. Doesn't wait for a
        busy engine; the next commit does."""
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        for task in filter(None, map(self._tasks.get, self._waiting.ring(now_ms))):
            self._write_task(task, now_ms, due=self._clock.monotonic_ms() < until_ms)

    def _write_task(self, task: Task, now_ms: int, *, due: bool) -> None:
        try:
            if due:
                task.apply()
            self._write_later(task)
        except StateBusyError as busy:
            self._waiting.set(task.id, now_ms + max(1, busy.pause_ms))

    def _write_later(self, task: Task) -> None:
        due_ms = task.write_due_ms
        if due_ms is not None:
            self._waiting.set(task.id, due_ms)

    def _round(self, until_ms: int) -> bool:
        """Give each task with input one turn. Returns False when there was nothing to do, or the time is over.

        The round has its own list of tasks, because the code that it calls may take a task away."""
        now_ms, before = self._clock.monotonic_ms(), self.processed
        for id, task in list(self._fed.items()):
            if id in self._going:
                now_ms = self._take_turn(task, now_ms)
                if now_ms >= until_ms:
                    return False
        return self.processed > before

    def _take_turn(self, task: Task, now_ms: int) -> int:
        """Process the task's next records, and return the present time. If the task has more records, it comes last in
        the next round."""
        id, limit = task.id, self._limits[task.id]
        try:
            done = task.process(limit, now_ms)
        finally:
            self._worked(task)
        self.processed += done
        if self._fed.pop(id, None) is not None and (done or task.input.waiting()):
            self._fed[id] = task
        ended_ms = self._clock.monotonic_ms()
        took_ms = ended_ms - now_ms
        if took_ms > TURN_MS:
            self._limits[id] = max(1, done * TURN_MS // took_ms)
        elif done == limit and took_ms <= TURN_MS // 2:
            self._limits[id] = min(MOST_RECORDS, 2 * limit)
        return ended_ms

    def _punctuate(self) -> bool:
        """Call the punctuations that are due, as far as time allows. Returns True if one was called."""
        called, until_ms = False, self._clock.monotonic_ms() + SLICE_MS
        for number, task in enumerate([self._going[id] for id in self._alarms.ring() if id in self._going]):
            if number and self._clock.monotonic_ms() >= until_ms:
                self._alarms.set_at_once(task)
                continue
            called |= self._punctuate_task(task)
        return called

    def _punctuate_task(self, task: Task) -> bool:
        try:
            return task.punctuate(self._clock.wall_ms())
        finally:
            self._worked(task)

    def should_fetch(self, timeout_ms: int) -> bool:
        return True

    def prepare_commit(self, now_ms: int, patience_ms: int = PREPARE_MS, *, final: bool = False) -> bool:
        while self._to_flush:
            self._flush_task(next(iter(self._to_flush.values())))
        return True

    def _flush_task(self, task: Task) -> None:
        task.flush()
        self._worked(task)
        del self._to_flush[task.id]

    def unlock(self) -> None:
        """Do nothing: no task is locked."""

    def apply(self, task: Task) -> None:
        try:
            task.apply()
        except StateBusyError as busy:
            self._apply_later(task, busy.pause_ms)
        self._changed[task] = None
        self._write_later(task)

    def _apply_later(self, task: Task, pause_ms: int) -> None:
        """Apply the commit when the engine isn't busy any more. Waits only as long as the group keeps a thread that
        doesn't answer."""
        until_ms = self._clock.monotonic_ms() + self._context.longest_wait_ms
        while pause_ms:
            self._clock.sleep_ms(pause_ms)
            try:
                task.apply(last=self._clock.monotonic_ms() >= until_ms)
                pause_ms = 0
            except StateBusyError as busy:
                pause_ms = busy.pause_ms

    def close(self, timeout_ms: int) -> None:
        """Do nothing: no task is with another thread."""

    def wake_up_ms(self, now_ms: int) -> int | None:
        return None if self._held else self._alarms.next_in_ms()
