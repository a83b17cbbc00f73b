"""`ThreadedProcessing` is the stream thread's side of the processing threads.

*Guarantees*: only `close` waits for tasks. `should_fetch` waits until input is needed, at most for its `timeout_ms`.
Only processing threads call user code. If a task's user code fails, the task is in quarantine, and its error is raised
when it has failed for `task_timeout_ms`. An error that isn't about a record is raised immediately.
*Assumes*: the stream thread makes all calls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Final

from milestones.common.diagnostics import line_of
from milestones.common.memory import Account
from milestones.instance.identity import processing_thread
from milestones.m2_processing_threads.arrivals import Arrivals
from milestones.m2_processing_threads.lending import LoopLending
from milestones.m2_processing_threads.metrics import SchedulerMeasures
from milestones.m2_processing_threads.output_room import OutputRoom
from milestones.m2_processing_threads.pool import WorkerHandle, WorkerPool
from milestones.m2_processing_threads.scheduled_task import SchedulerPlace
from milestones.m2_processing_threads.scheduler import Scheduler, wait
from milestones.m2_processing_threads.staffing import ShareOfThreads, Staffing
from milestones.m2_processing_threads.worker import ProcessingThread, Worker
from milestones.parts import PREPARE_MS, CloseMode, Loop, RemovedTask
from milestones.shared_parts.retirement import retire

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext

log: Final = logging.getLogger(__name__)

FIRST_LOOK_MS, LONGEST_LOOK_MS = 1, 16
"""The shortest and the longest time between two turns of the stream thread while threads work. A turn sends outputs,
and ends leases that are over (`Scheduler.wake`)."""

ENOUGH, FEW = 3_000, 1_000
"""While every thread has a task: fetching stops at `ENOUGH` records in the input buffers, and resumes at `FEW`."""

KEPT = (SchedulerPlace.LOCKED, SchedulerPlace.QUARANTINED)
"""Places in which no thread may take a task."""


def start(worker: Worker, context: ThreadContext) -> WorkerHandle:
    thread = ProcessingThread(worker, context.thread_registry.helping(context.number))
    thread.start()
    return thread


class ThreadedProcessing:
    """*Owns*: the scheduler, the processing threads. *Sends* and *receives* what the scheduler passes on.

    `Staffing` decides which threads there are."""

    def __init__(
        self,
        context: ThreadContext,
        launch: Callable[[Worker, ThreadContext], WorkerHandle] = start,
        wait: Callable[[threading.Condition, int], object] = wait,
        staffing: Staffing | None = None,
    ) -> None:
        """`launch` starts a thread for a worker. Tests pass other functions than the defaults. `staffing`: by default
        this thread's share of the instance's threads."""
        self._context, self._clock = context, context.clock
        self._staffing = staffing or ShareOfThreads(context)
        self._enough = min(ENOUGH, context.config.buffered_records_per_partition)
        priorities = context.config.task_priorities
        self._scheduler = Scheduler(
            context.clock,
            self._staffing.wanted,
            context.config.task_timeout_ms,
            lambda id: priorities.get(id.subtopology, 1),
            OutputRoom(partial(context.memory.part, Account.OUTPUTS)),
            wait,
            self._commit_full,
        )
        self._lending = LoopLending(context.clock, self._may_be_lent, self._scheduler.call, wait)
        self._threads = WorkerPool(self._worker, lambda worker: launch(worker, context))
        self._tasks: dict[TaskId, Task] = {}
        self._arrivals = Arrivals()
        self._look_ms = FIRST_LOOK_MS
        self._seen = 0
        self._preparing_since_ms: dict[bool, int] = {}
        self._late: list[RemovedTask] = []
        self._held, self._paused = False, frozenset[int]()
        self._held_back: Set[TaskId] = frozenset()
        self._measures = SchedulerMeasures(context.metrics, context.name)
        self._rests = 0
        self._told: set[TaskId] = set()

    def _commit_full(self, task: Task) -> None:
        """Request a commit if a task without room needs it: `BufferedCollection` sends some outputs only within a
        commit, and kept outputs are freed only by a commit."""
        if task.has_retained_outputs or (self._context.config.exactly_once and task.cached):
            task.request_commit()

    def add(self, task: Task) -> None:
        self._tasks[task.id] = task
        self._arrivals.add(task)
        self._scheduler.add(task)
        self._start()

    def _start(self) -> None:
        """Start missing threads, and let surplus threads leave."""
        self._scheduler.threads = self._staffing.wanted
        self._staffing.staff(self._threads)

    def _worker(self, number: int) -> Worker:
        name = processing_thread(self._context.identity, number)
        return Worker(name, self._scheduler, self._clock, self._context.metrics, self._lending)

    def _may_be_lent(self) -> bool:
        """Return True if there is exactly one processing thread. A second thread would have to wait for one that is in
        a turn of the loop."""
        return len(self._threads.numbers) == 1

    def run_turn(self, loop: Loop) -> None:
        self._lending.run_turn(loop)

    def may_wait_for_kafka(self) -> bool:
        return not (self._lending.worker_in_turn and self._scheduler.working()[1])

    def take_back_loop(self) -> BaseException | None:
        return self._lending.take_back_loop()

    def remove(self, task: TaskId, close_mode: CloseMode) -> None:
        self._preparing_since_ms.clear()  # the commit has succeeded, or its tasks are lost or rolled back
        self._arrivals.remove(self._tasks.pop(task))
        self._told.discard(task)
        self._scheduler.remove(task, close_mode)
        if not len(self._threads):  # all threads were removed before the first task came; yet that task must be closed
            self._threads.resize(1)

    def retire(self, task: Task, close_mode: CloseMode) -> None:
        """Close a task that `Processing` doesn't have. A processing thread closes the task's processors. A task whose
        processors were never made is closed here, immediately. When the threads must end, another thread closes the
        task for good, and it isn't given back."""
        if not task.has_program:
            self._late.append(retire(task, close_mode))
            return
        self._scheduler.retire(task, close_mode)
        if not self._scheduler.closing:
            self._start()
            return
        self._threads.resize(len(self._threads) + 1)
        if self._threads.refused is not None:
            why = self._threads.refused
            log.error("task %s isn't closed, its state stays locked until this process ends: %s", task.id, why)

    def take_removed(self) -> list[RemovedTask]:
        late, self._late = self._late, []
        return late + self._scheduler.take_removed()

    def take_failed(self) -> Sequence[tuple[TaskId, BaseException]]:
        failures = self._scheduler.failures()
        final = [(id, failure.error) for id, failure in failures.items() if failure.final and id not in self._told]
        self._told.update(id for id, _ in final)
        return final

    def failing(self) -> dict[TaskId, str]:
        failures = self._scheduler.failures()
        return {id: line_of(failure.error) for id, failure in failures.items() if not failure.final}

    def take_changed(self) -> Collection[Task]:
        return self._scheduler.take_changed()

    def places(self) -> dict[TaskId, str]:
        return {id: place.value for id, place in self._scheduler.places().items() if place in KEPT}

    def hold_all(self, held: bool) -> None:
        if held != self._held:
            self._held = held
            self.pause(self._paused)

    def pause(self, subtopologies: frozenset[int]) -> None:
        self._paused = subtopologies
        every = frozenset(sub.id for sub in self._context.application.subtopologies)
        self._scheduler.pause(every if self._held else subtopologies)

    def hold_tasks(self, tasks: Set[TaskId]) -> None:
        if tasks != self._held_back:
            self._held_back = tasks
            self._scheduler.hold_tasks(tasks)

    def at_rest(self, tasks: Set[TaskId]) -> bool:
        return self._scheduler.at_rest(tasks)

    def run_once(self, now_ms: int) -> bool:
        """Wake threads that have something to do, end leases that are over, and raise the error of a dead thread."""
        self._scheduler.wake(self._arrivals.look())
        if self._staffing.due:
            self._start()
        if self._measures.due(now_ms):
            if len(self._threads):
                self._start()
            self._measure(now_ms)
        if self._scheduler.dead is not None:
            raise self._scheduler.dead
        processed = self._scheduler.processed
        if processed != self._seen:
            self._seen, self._look_ms = processed, FIRST_LOOK_MS
        return False

    def _measure(self, now_ms: int) -> None:
        output_bytes = sum(task.output_bytes() for task in self._tasks.values())
        self._measures.failing(now_ms, self._scheduler.failures())
        self._measures.publish(now_ms, self._scheduler.statistics(), len(self._threads), output_bytes, self._rests)

    @property
    def processed(self) -> int:
        return self._scheduler.processed

    def wake_up_ms(self, now_ms: int) -> int | None:
        leased, more = self._scheduler.working()
        if self._lending.worker_in_turn:
            return 0 if more or self._scheduler.changed else self._scheduler.idle_ms()
        if not (leased or more):
            self._look_ms = FIRST_LOOK_MS
            return None
        look_ms, self._look_ms = self._look_ms, min(2 * self._look_ms, LONGEST_LOOK_MS)
        return look_ms

    # -- back-pressure

    def should_fetch(self, timeout_ms: int) -> bool:
        if not self._sated(self._enough):
            return True
        if self._lending.worker_in_turn:
            self._scheduler.sleep(timeout_ms)
            return False
        self._rests += 1
        few = self._enough * FEW // ENOUGH
        self._scheduler.wait_for_news(timeout_ms, lambda: not self._sated(few))
        return False

    def _sated(self, enough: int) -> bool:
        """Return True if there is enough input: every thread, or every task if there are fewer tasks, has records to
        process, and enough records or bytes wait. If a task has no record of one of its partitions, its other records
        don't count: the missing ones must still be fetched."""
        wanted, records = min(self._scheduler.threads, len(self._tasks)), 0
        waiting: list[Task] = []
        now_ms = self._clock.monotonic_ms()
        for task, count in self._arrivals.waiting():
            if not task.ready(now_ms):
                continue
            waiting.append(task)
            records += count
            if records >= enough and len(waiting) >= wanted:
                return True
        return len(waiting) >= wanted and sum(task.input.bytes() for task in waiting) >= self._many_bytes()

    def _many_bytes(self) -> int:
        """Return half of this thread's share of the input memory. If all of the share were used, partitions would have
        to be paused."""
        return self._context.memory.part(Account.INPUT) // 2

    # -- commits

    def prepare_commit(self, now_ms: int, patience_ms: int = PREPARE_MS, *, final: bool = False) -> bool:
        if self._scheduler.flush(final=final):
            return True
        return now_ms - self._preparing_since_ms.setdefault(final, now_ms) >= patience_ms

    def unlock(self) -> None:
        self._preparing_since_ms.clear()
        self._scheduler.unlock()

    def apply(self, task: Task) -> None:
        self._scheduler.apply(task.id)

    # -- the end

    def close(self, timeout_ms: int) -> None:
        self._measures.close()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if not self._scheduler.close(timeout_ms):
            log.warning("%s doesn't wait any longer for user code that doesn't return", self._context.name)
        self._threads.join(self._clock, deadline_ms)
