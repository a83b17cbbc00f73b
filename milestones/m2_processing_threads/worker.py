"""`Worker` does the work of a processing thread: it takes a task, works on the task, and gives it back.

*Guarantees*: a worker has one task at most. If anything raises an error, the task is given back with the error. A turn
takes one time slice, or one record if a record takes longer. A request about the task ends the turn at the next
record's boundary.
*Assumes*: the stream thread calls `Scheduler.wake` every few ms. Within a batch only that call enforces the deadline.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateBusyError
from milestones.common.last_words import report
from milestones.common.testing.faults import reach
from milestones.m2_processing_threads.lending import TURN_MS, LoopLending
from milestones.m2_processing_threads.metrics import WorkerMeasures
from milestones.m2_processing_threads.scheduled_task import Job, Lease
from milestones.m2_processing_threads.scheduler import SLICE_MS, wait
from milestones.parts import CloseMode, RemovedTask
from milestones.shared_parts.retirement import retire

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from milestones.common.clock import Clock
    from milestones.common.metrics import Metrics
    from milestones.m2_processing_threads.scheduler import Scheduler

log: Final = logging.getLogger(__name__)

MOST_RECORDS = 500
"""The most records of one batch. Between two batches the worker checks for requests and looks at the clock."""

SHORT_MS, LONG_MS = 4, 10
"""After a batch that took less than `SHORT_MS` the next one is larger; after one that took more than `LONG_MS`,
smaller."""


PARTS: Final = {
    "run_once": "waits for a task", "_work": "works on tasks", "_turn_loop": "makes the stream thread's turns",
}  # fmt: skip
"""The methods that a profile measures, each with the words under which the profile shows its time."""


class Worker:
    """The step function of a processing thread. *Owns*: the task of its lease. *Receives*: leases. *Sends*: their
    results.

    *Concurrency*: the stream thread sets `leaving`, when the worker isn't wanted any more. The worker sets `ended`."""

    name: str
    ended: bool

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        clock: Clock,
        metrics: Metrics,
        lending: LoopLending | None = None,
    ) -> None:
        """`lending`: lends the stream thread's loop to this worker; by default the loop is never lent."""
        self._lending = lending or LoopLending(clock, lambda: False, scheduler.call, wait)
        self.name, self._scheduler, self._clock = name, scheduler, clock
        self._measures = WorkerMeasures(metrics, name, clock)
        self.leaving = self.ended = False
        if metrics.profile is not None:
            metrics.profile.follow_thread(name, [(self, PARTS)])

    @property
    def over(self) -> bool:
        """True if the scheduler is closed: then a worker that has nothing to do ends."""
        return self._scheduler.closing

    def died(self, error: BaseException) -> None:
        """Tell the stream thread that this thread ends because of `error`."""
        self._scheduler.died(error)

    def close(self) -> None:
        """Remove the metrics."""
        self._measures.close()
        self.ended = True

    def run_once(self) -> bool:
        """Take one step: 1. take a task; 2. do the job of its lease; 3. give the task back; 4. make a turn of the
        stream thread's loop, if it is lent. Returns False if for a while there was nothing to work on."""
        self._measures.publish()
        lent = self._lending.lent
        lease = self._scheduler.take(self.name, TURN_MS if lent else SLICE_MS)
        if lease is None:
            if not self._turn_loop(idle=True):
                self._scheduler.sleep(unless=lambda: self._lending.turn_is_due)
            return False
        self._lending.works(calls=lease.job is not Job.APPLY)
        error: BaseException | None = None
        removed: RemovedTask | None = None
        try:
            self._measures.begin()
            try:
                removed = self._work(lease)
            finally:
                self._measures.end(lease)
        except BaseException as raised:
            error = raised
        if not self._scheduler.give_back(lease, error, removed) and removed is not None:
            self._close(removed)
        self._turn_loop(idle=False)
        return True

    def _turn_loop(self, *, idle: bool) -> bool:
        return self._lending.turn(idle=idle)

    def _close(self, removed: RemovedTask) -> None:
        """Close the stores of a task that has outlived its stream thread."""
        log.info("task %s came back after the end of its stream thread, and is closed", removed.task.id)
        try:
            if removed.stores is not None:
                removed.stores.close()
        except Exception:
            log.exception("task %s: its stores didn't close cleanly", removed.task.id)

    def _work(self, lease: Lease) -> RemovedTask | None:
        match lease.job:
            case Job.LEAVE:
                return self._retire(lease)
            case Job.APPLY:
                reach("task.write")
                self._apply(lease)
            case Job.FLUSH:
                lease.task.flush()
            case Job.TURN:
                self._turn(lease)
        return None

    def _apply(self, lease: Lease) -> bool:
        """Apply the task's confirmed commit. Returns False if the engine is busy: then the task waits for the time that
        the lease has. When threads must end, this is the last try, as no later one is possible."""
        try:
            lease.task.apply(last=self._scheduler.closing)
        except StateBusyError as busy:
            lease.pause_ms = busy.pause_ms
            return False
        return True

    def _retire(self, lease: Lease) -> RemovedTask | None:
        """Apply the task's confirmed commit, then close the task as its close mode says. Returns None if the task must
        wait first. If applying fails, the task will be restored."""
        task, close_mode = lease.task, lease.scheduled.close_mode
        failure: Exception | None = None
        try:
            if task.applying and not self._apply(lease):
                return None
        except Exception as error:
            log.error("task %s: what was committed can't be written, it will be restored: %s", task.id, error)
            failure = error
        if self._scheduler.closing or close_mode is None:
            close_mode = CloseMode.CLOSE
        removed = retire(task, close_mode)
        return removed if failure is None or removed.error is not None else replace(removed, error=failure)

    def _turn(self, lease: Lease) -> None:
        """Initialise and punctuate the task, then process records. If the task failed before, its caches are flushed
        first, as the flush may be what failed. At least one record is processed, however long the rest took, unless the
        lease must end."""
        task, clock = lease.task, self._clock
        task.initialise()
        if lease.scheduled.failure is not None:
            task.flush()
        task.punctuate(clock.wall_ms())
        began_ms, held = clock.monotonic_ms(), task.output_bytes()
        lease.output_bytes = held
        if began_ms >= lease.deadline_ms:
            lease.limit = 1
        while not lease.stop:
            done = task.process(lease.limit, clock.monotonic_ms())
            now_ms = clock.monotonic_ms()
            dry, took_ms = done < lease.limit, now_ms - began_ms
            self._adapt(lease, took_ms)
            lease.output_bytes = held = self._fit(lease, done, held)
            if dry or lease.full or now_ms >= lease.deadline_ms:
                return
            per_record_ms = took_ms / done
            fitting = int((lease.deadline_ms - now_ms) / per_record_ms) if per_record_ms else MOST_RECORDS
            if fitting < 1:
                return
            lease.limit = min(lease.limit, fitting)
            began_ms = now_ms

    def _adapt(self, lease: Lease, took_ms: int) -> None:
        if took_ms > LONG_MS:
            lease.limit = max(1, lease.limit // 2)
        elif took_ms < SHORT_MS:
            lease.limit = min(MOST_RECORDS, lease.limit * 2)

    def _fit(self, lease: Lease, done: int, before: int) -> int:
        """Note whether the task's outputs have no more room, and set the size of the next batch. Its outputs must fit
        into the room that is left, or into the least room that is free when the task is next taken. `before`: the bytes
        that the task held before this batch. Returns the bytes that it holds now. Outputs of earlier batches may stay
        for a commit interval."""
        held, most = lease.task.output_bytes(), self._scheduler.most_output_bytes(lease.task)
        lease.full = lease.full or held >= most
        put_out = held - before if held > before else held  # the stream thread has sent some outputs in the meantime
        if put_out and done:
            room = self._scheduler.next_output_bytes() if lease.full else most - held
            lease.limit = max(1, min(lease.limit, done * room // put_out))
        return held


class ProcessingThread(threading.Thread):
    """Drives a `Worker` until the worker must leave, or until the scheduler is closed and nothing is left to do. When
    the scheduler is closed, even a worker that must leave takes the remaining tasks, as there may be no other worker.

    *Owns*: the worker. *Receives* and *sends* the same as the worker.
    """

    def __init__(self, worker: Worker, inside: AbstractContextManager[None]) -> None:
        """`inside`: the context manager in which the thread runs."""
        super().__init__(name=worker.name, daemon=True)
        self._worker, self._inside = worker, inside

    def run(self) -> None:
        with self._inside:
            self._run()

    def _run(self) -> None:
        try:
            while self._worker.run_once() or not self._worker.over:
                if self._worker.leaving and not self._worker.over:
                    break
        except BaseException as error:
            self._worker.died(error)
            report(log, "%s dies", self.name, error=error)
        finally:
            self._worker.close()
