"""`Scheduler` gives a stream thread's tasks to its processing threads: a task to one thread at a time.

*Why this way*:
- One lock guards all places of all tasks, so that a task is never in two places. This lock is held for short steps
  only.
- Threads take any ready task. So a slow task occupies one thread, and tasks need no fixed thread.
- The stream thread ends turns (`wake`), because a thread in user code can't look at the clock.
- Only changed tasks are looked at, so that an instance with thousands of idle tasks pays nothing for them.

*Guarantees*
- A task has one place: idle, leased, locked for a commit, quarantined; or it was given back.
- A ready task waits for a thread no longer than `ready_queue.py` says.
- Closing a task, applying a confirmed commit and a flush come before the task's records, at the next record's boundary.
  The stream thread asks for a task once, and gets it back once.
- A task that fails delays no other task, and its error concerns only itself (`quarantine.py`). A task whose engine is
  busy delays no other task either: it waits until its confirmed commit can be applied.
- A lease, a turn of the stream thread, a thread's sleep and a commit look only at tasks that have changed. A last
  commit and a pause look at all tasks (`runnable_tasks.py`).

*Assumes*: the stream thread calls `wake` every few ms, which ends leases that are over. Only quick calls are made under
the lock: no user code (log handlers, texts of errors), no store, no client.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Set
from typing import TYPE_CHECKING, Final

from milestones.common.diagnostics import brief, text_of
from milestones.common.errors import OwnershipError
from milestones.common.memory import UNBOUNDED
from milestones.m2_processing_threads.commit_preparation import CommitPreparation, is_in_a_call
from milestones.m2_processing_threads.leaving import LeavingTasks
from milestones.m2_processing_threads.metrics import SchedulerStatistics, Times
from milestones.m2_processing_threads.output_room import OutputRoom
from milestones.m2_processing_threads.quarantine import TaskFailure, failed, is_permanent
from milestones.m2_processing_threads.runnable_tasks import RunnableTasks
from milestones.m2_processing_threads.scheduled_task import Job, Lease, ScheduledTask, SchedulerPlace
from milestones.parts import CloseMode, RemovedTask

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task

log: Final = logging.getLogger(__name__)

SLICE_MS = 50
"""The time for which a thread works on a task of the greatest weight while others wait. For tasks of a smaller weight
the time is shorter. A call of user code isn't interrupted, so that it may last longer."""

IDLE_MS = 1_000
"""The longest sleep of a thread without work."""

ROOM_MS = 16
"""The longest sleep of a thread while tasks wait for room for their outputs, if the same thread sends the outputs."""


def wait(condition: threading.Condition, timeout_ms: int) -> None:
    """Wait in real time."""
    condition.wait(timeout_ms / 1000)


class Scheduler:
    """*Owns*: the place of each task. *Concurrency*: one lock guards everything. Idle processing threads wait for
    `_look`; the stream thread waits for `_news`. `_void`: leases of tasks that were taken away. `dead`: the bug that
    has ended a processing thread."""

    threads: int

    def __init__(
        self,
        clock: Clock,
        threads: int,
        timeout_ms: int,
        weight: Callable[[TaskId], int] = lambda _: 1,
        room: OutputRoom | None = None,
        wait: Callable[[threading.Condition, int], object] = wait,
        on_full: Callable[[Task], object] = lambda _: None,
    ) -> None:
        """`threads`: the number of threads; the stream thread updates it. `timeout_ms`: how long a task may fail.
        `room`: the room for outputs, by default without bounds. `on_full`: called, under the lock, with a task that
        must wait for room. `wait`: waits for a condition, at most for the given ms; tests pass another function."""
        self._clock, self.threads, self._timeout_ms = clock, threads, timeout_ms
        self._room = room or OutputRoom(lambda _: UNBOUNDED)
        self._weight, self._wait, self._on_full = weight, wait, on_full
        self._lock = threading.Lock()
        self._look, self._news = threading.Condition(self._lock), threading.Condition(self._lock)
        self._runnable = RunnableTasks(clock, SLICE_MS)
        self._scheduled = self._runnable.entries
        self._preparation = CommitPreparation(self._runnable)
        self._weights, self._heaviest = Counter[int](), 1
        self._leased: dict[ScheduledTask, Lease] = {}
        self._void: dict[ScheduledTask, Lease] = {}
        self._failing: dict[TaskId, TaskFailure] = {}
        self._full: dict[ScheduledTask, None] = {}
        self._changed: dict[Task, None] = {}
        self._leaving = LeavingTasks()
        self._in_transit = 0
        self._removed: list[RemovedTask] = []
        self._idle = 0
        self.dead: BaseException | None = None
        self.closing: bool = False
        self.processed: int = 0
        self.held_back: int = 0
        self._waits, self._pauses = Times(), Times()

    # -- the stream thread's side

    def add(self, task: Task) -> None:
        with self._lock:
            scheduled = ScheduledTask(task, self._weight(task.id))
            self._weights[scheduled.weight] += 1
            self._heaviest = max(self._weights)
            self._changed[task] = None
            self._preparation.worked(scheduled)
            self._room.add(task)
            self._runnable.add(scheduled, self._clock.monotonic_ms())
            self._call(1)

    def remove(self, id: TaskId, close_mode: CloseMode) -> None:
        """Take the task away. `take_removed` will return it, closed as `close_mode` says. What user code does in the
        task from now on is dropped."""
        with self._lock:
            scheduled = self._scheduled[id]
            self._runnable.remove(scheduled)
            self._preparation.forget(scheduled)
            self._weights -= Counter((scheduled.weight,))
            self._heaviest = max(self._weights, default=1)
            if (lease := self._leased.pop(scheduled, None)) is not None:
                self._void[scheduled] = lease
            self._full.pop(scheduled, None)
            self._room.remove(scheduled.task)
            self._failing.pop(id, None)
            self._changed[scheduled.task] = None
            scheduled.task.invalidate()
            self._begin_removal(scheduled, close_mode)

    def retire(self, task: Task, close_mode: CloseMode) -> None:
        """Close a task that the scheduler doesn't have. `take_removed` will return it, as after `remove`."""
        with self._lock:
            self._begin_removal(ScheduledTask(task, 1), close_mode)

    def _begin_removal(self, scheduled: ScheduledTask, close_mode: CloseMode) -> None:
        scheduled.close_mode = close_mode
        self._in_transit += 1
        if scheduled.lease is not None:
            scheduled.lease.end()
            return
        scheduled.release()
        if close_mode is CloseMode.SUSPEND and not scheduled.task.applying:
            self._give(RemovedTask(scheduled.task))
        else:
            self._retire(scheduled)

    def _retire(self, scheduled: ScheduledTask) -> None:
        self._leaving.put(scheduled)
        self._call(1)

    def take_removed(self) -> list[RemovedTask]:
        with self._lock:
            removed, self._removed = self._removed, []
            return removed

    @property
    def changed(self) -> bool:
        """True if tasks have changed since the last call of `take_changed`. Leased tasks don't count."""
        return bool(self._changed)

    def take_changed(self) -> Collection[Task]:
        """Return the tasks that have changed since the last call, and the leased ones. A thread changes a task before
        it gives the task back. So a stream thread that looks at the tasks of each call misses no change."""
        with self._lock:
            changed, self._changed = self._changed, {}
            changed.update((scheduled.task, None) for scheduled in self._leased)
            return changed

    def apply(self, id: TaskId) -> None:
        """Have the task's confirmed commit applied."""
        with self._lock:
            scheduled = self._scheduled[id]
            if scheduled.lease is not None:
                scheduled.lease.end()
            self._runnable.look(scheduled, self._clock.monotonic_ms())
            self._call(1)

    def pause(self, subtopologies: frozenset[int]) -> None:
        with self._lock:
            self._runnable.paused = subtopologies
            for scheduled, lease in self._leased.items():
                if self._runnable.is_paused(scheduled):
                    lease.end()
            self._runnable.look_at_all(self._clock.monotonic_ms())
            self._look.notify_all()

    def hold_tasks(self, ids: Set[TaskId]) -> None:
        """Begin no record and no punctuation of these tasks. No other tasks are held back."""
        with self._lock:
            changed, self._runnable.held_back = ids ^ self._runnable.held_back, ids
            for scheduled in filter(None, map(self._scheduled.get, changed)):
                if scheduled.lease is not None and scheduled.task.id in ids:
                    scheduled.lease.end()
            self._runnable.look_at(changed, self._clock.monotonic_ms())
            self._call(self._takable())

    def at_rest(self, ids: Set[TaskId]) -> bool:
        """Return True if no thread processes these tasks. A task in a long call counts as resting."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            leases = (scheduled.lease for scheduled in map(self._scheduled.get, ids) if scheduled is not None)
            turns = [lease.scheduled for lease in leases if lease is not None and lease.job is Job.TURN]
            return all(is_in_a_call(scheduled, now_ms) for scheduled in turns)

    def flush(self, *, final: bool = False) -> bool:
        """Have the caches of all tasks flushed, and lock these tasks. Returns True when all are flushed and locked.
        Leaves out tasks in quarantine, and doesn't wait for tasks in a long call.

        `final`: True for the last commit of these tasks, which must have all their work. Every task with a cache is
        locked, even if its cache is empty. If a confirmed commit of a task isn't applied yet, it is applied first,
        provided that the task has done more since, or may still do so.
        """
        with self._lock:
            prepared = self._preparation.flush(self._clock.monotonic_ms(), self._leased, final=final)
            self._call(self._takable())
            return prepared

    def unlock(self) -> None:
        """Release the locked tasks. Flushes that haven't begun are cancelled, except for tasks in a long call: another
        commit will follow for these, and for tasks that are being flushed now."""
        with self._lock:
            self._preparation.unlock(self._clock.monotonic_ms())
            self._call(self._takable())

    def wake(self, arrived: Collection[TaskId] | None = None) -> None:
        """End leases that are over, and wake threads for tasks that can be taken because outputs were sent, time has
        passed, or input came. `arrived`: the tasks that have got input; None means any task."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            self._interrupt(now_ms)
            self._look_for_room(now_ms)
            self._runnable.patrol(now_ms)
            if arrived is None:
                self._runnable.look_at_all(now_ms)
            else:
                self._runnable.look_at(arrived, now_ms)
            self._call(self._takable())

    def _interrupt(self, now_ms: int) -> None:
        """Interrupt the batches of leases that are over. Each call repeats the interruptions, because a batch that was
        just beginning may have missed the last one."""
        for leases in (self._leased, self._void):
            for lease in leases.values():
                if lease.stop or now_ms >= lease.deadline_ms:
                    lease.task.interrupt()

    def _look_for_room(self, now_ms: int) -> None:
        self._room.look_at_all()
        for scheduled in [scheduled for scheduled in self._full if self._room.has_room(scheduled.task)]:
            del self._full[scheduled]
            scheduled.full = False
            self._runnable.look(scheduled, now_ms)

    def _takable(self) -> int:
        """Return the number of tasks that threads could take."""
        return self._leaving.due(self._clock.monotonic_ms()) + (0 if self.closing else len(self._runnable))

    def _call(self, threads: int) -> None:
        """Wake sleeping threads, up to this number."""
        if self._idle and threads > 0:
            self._look.notify(min(self._idle, threads))

    def most_output_bytes(self, task: Task) -> int:
        """Return the bytes of outputs at which the task must wait. Doesn't take the lock."""
        return self._room.most(task, self.threads)

    def next_output_bytes(self) -> int:
        """Return the bytes that a task may add at least, after it had to wait. Doesn't take the lock."""
        return self._room.next()

    def died(self, error: BaseException) -> None:
        """Note that a processing thread ends because of a bug."""
        with self._lock:
            self.dead = error
            self._news.notify_all()

    def failures(self) -> dict[TaskId, TaskFailure]:
        """Return the failure of each task in quarantine."""
        with self._lock:
            return dict(self._failing)

    def places(self) -> dict[TaskId, SchedulerPlace]:
        with self._lock:
            return {id: scheduled.place for id, scheduled in self._scheduled.items()}

    def working(self) -> tuple[int, int]:
        """Return the number of tasks that threads work on, and the number of tasks that they could take."""
        with self._lock:
            self._runnable.look_at_alarms(self._clock.monotonic_ms())
            return len(self._leased), self._takable()

    def wait_for_news(self, timeout_ms: int, until: Callable[[], bool]) -> bool:
        """Wait, at most `timeout_ms`, until a thread has something to report and `until()` is true. Returns whether it
        is true."""
        with self._lock:
            return self._wait_until(until, timeout_ms)

    def _wait_until(self, holds: Callable[[], bool], timeout_ms: int) -> bool:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not holds():
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return False
            self._wait(self._news, left_ms)
        return True

    def close(self, timeout_ms: int) -> bool:
        """Wait at most `timeout_ms` until every removed task is back, then let the threads end. Returns True if all are
        back. If a task comes back later, a thread closes it. From now on no task waits for a busy engine."""
        with self._lock:
            self._interrupt(self._clock.monotonic_ms())
            back = self._wait_until(lambda: self._in_transit == 0, timeout_ms)
            self.closing = True
            self._leaving.hurry()
            self._look.notify_all()
            return back

    # -- the processing threads' side

    def take(self, owner: str, most_ms: int = SLICE_MS) -> Lease | None:
        """Give a thread its next lease, of `most_ms` at most; None when there is nothing to do."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            chosen = self._choose(now_ms)
            if chosen is None:
                return None
            scheduled, job = chosen
            if job is Job.TURN:
                self._waits.add(now_ms - scheduled.since_ms)
                if scheduled.paused_since_ms is not None:
                    self._pauses.add(now_ms - scheduled.paused_since_ms)
                    scheduled.paused_since_ms = None
            scheduled.release()
            scheduled.place = SchedulerPlace.LEASED
            slice_ms = max(1, min(SLICE_MS, most_ms) * scheduled.weight // self._heaviest)
            scheduled.lease = Lease(scheduled, job, owner, now_ms + slice_ms)
            (self._void if job is Job.LEAVE else self._leased)[scheduled] = scheduled.lease
            return scheduled.lease

    def _choose(self, now_ms: int) -> tuple[ScheduledTask, Job] | None:
        leaving = self._leaving.take(now_ms)
        if leaving is not None:
            return leaving, Job.LEAVE
        if self.closing:
            return None
        before = len(self._runnable)
        self._runnable.look_at_alarms(now_ms)
        self._call(len(self._runnable) - max(1, before))  # this thread takes one of the tasks itself
        overdue = sum(now_ms >= lease.deadline_ms for lease in self._leased.values())
        if self._void:
            overdue += sum(now_ms >= lease.deadline_ms for lease in self._void.values())
        return self._runnable.choose(now_ms, len(self._leased), max(1, self.threads - overdue))

    def give_back(self, lease: Lease, error: BaseException | None = None, removed: RemovedTask | None = None) -> bool:
        """Take the task back from its thread: the lease is over, the task failed (`error`), or it was closed because it
        leaves (`removed`). Returns False if the stream thread has ended and takes no removed task."""
        scheduled, failure = lease.scheduled, None
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if scheduled.lease is not lease:
                raise OwnershipError(f"{lease.owner} gives back task {lease.task.id} without a lease. This is a bug")
            scheduled.lease, scheduled.place, scheduled.limit = None, SchedulerPlace.IDLE, lease.limit
            scheduled.busy_until_ms = now_ms + lease.pause_ms if lease.pause_ms else 0
            (self._leased if scheduled.close_mode is None else self._void).pop(scheduled)
            self.processed += lease.processed
            if lease.full and not scheduled.full:
                scheduled.full = True
                self.held_back += 1
                self._on_full(scheduled.task)
            if removed is not None:
                self._give(removed)
            elif scheduled.close_mode is not None:
                self._retire(scheduled)
            else:
                self._changed[scheduled.task] = None
                self._room.look_at(scheduled.task, None if error is not None else lease.output_bytes)
                self._preparation.worked(scheduled)
                if scheduled.full:
                    self._full[scheduled] = None
                if error is not None:
                    failure = self._note(scheduled, error, lease.processed > 0, now_ms)
                else:
                    self._settle(scheduled, lease, now_ms)
                self._runnable.look(scheduled, now_ms)
            self._news.notify_all()
            taken = not self.closing
        if error is not None:
            self._tell(lease.task, error, failure)
        return taken

    def _settle(self, scheduled: ScheduledTask, lease: Lease, now_ms: int) -> None:
        if lease.processed or (lease.job is Job.TURN and not lease.stop):
            scheduled.failure = None
            self._failing.pop(scheduled.task.id, None)
        if scheduled.failure is not None:
            scheduled.quarantine(scheduled.failure)
        elif lease.job is Job.FLUSH:
            self._preparation.flushed(scheduled, now_ms)

    def _note(self, scheduled: ScheduledTask, error: BaseException, progress: bool, now_ms: int) -> TaskFailure:
        before = None if progress else scheduled.failure
        permanent = is_permanent(error) or not scheduled.task.initialised
        failure = failed(error, before, now_ms, self._timeout_ms, permanent=permanent)
        self._failing[scheduled.task.id] = failure
        scheduled.quarantine(failure)
        return failure

    def _tell(self, task: Task, error: BaseException, failure: TaskFailure | None) -> None:
        """Log the failure. Called without the lock, as log handlers and the texts of errors are user code. `failure`:
        None if the task was taken away."""
        if failure is None:
            log.info("task %s failed after it was taken away, which has no effect: %s", task.id, text_of(error))
        elif failure.first and not failure.final:
            log.warning(
                "task %s failed and is in quarantine, the others go on; it is tried again for %d ms (task_timeout_ms): "
                "%s",
                task.id, self._timeout_ms, text_of(error), exc_info=brief(error),
            )  # fmt: skip

    def _give(self, removed: RemovedTask) -> None:
        self._in_transit -= 1
        if not self.closing:
            self._removed.append(removed)
        self._news.notify_all()

    def call(self) -> None:
        """Wake a thread that sleeps, if there is one."""
        with self._lock:
            self._call(1)

    def sleep(self, most_ms: int = IDLE_MS, unless: Callable[[], bool] = lambda: False) -> None:
        """Sleep until there may be something to do. `unless` returns True if the caller knows of other work. When that
        changes, another thread calls `call`."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            self._runnable.patrol(now_ms)
            if self.closing or self._takable() or unless():
                self._call(self._takable() - 1)
                return
            self._idle += 1
            try:
                self._wait(self._look, self._idle_ms(now_ms, most_ms))
            finally:
                self._idle -= 1

    def idle_ms(self, most_ms: int = IDLE_MS) -> int:
        """Return the ms for which there is nothing to do, unless something happens; at most `most_ms`. The time is
        short while tasks wait for room, as the stream thread makes room when it sends."""
        with self._lock:
            return self._idle_ms(self._clock.monotonic_ms(), min(most_ms, ROOM_MS) if self._full else most_ms)

    def _idle_ms(self, now_ms: int, most_ms: int) -> int:
        return self._leaving.idle_ms(now_ms, self._runnable.idle_ms(now_ms, most_ms))

    # -- metrics

    def statistics(self) -> SchedulerStatistics:
        """Read out the numbers for metrics, and begin to count durations anew."""
        with self._lock:
            times = self._waits, self._pauses
            self._waits, self._pauses = Times(), Times()
            busy = sum(scheduled.busy_until_ms > 0 for scheduled in (*self._scheduled.values(), *self._leaving))
            return SchedulerStatistics(
                len(self._leased), self._takable(), len(self._failing), busy, len(self._full), self.held_back, *times
            )
