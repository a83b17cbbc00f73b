"""`RunnableTasks` knows which tasks threads could take now, and when there will be more. It looks at a task when
something has happened to the task.

    something has happened ---> look ---> maintenance   (apply, flush)
    or an alarm rings                 |-> turns         (initialise, punctuate, process)
                                      |-> missing a partition   (its records wait for those of another partition)
                                      +-> none, but its next alarm is set: punctuation, next try, end of a lock,
                                          a busy engine

*Guarantees*: the cost of a lease grows with the logarithm of the number of ready tasks, and not with the number of
tasks that have nothing to do. A leased task is in none of these groups; `Scheduler.give_back` looks at it. A patrol
finds events that were not reported: every `PATROL_MS` it looks at the next few tasks, until it has looked at all.
*Assumes*: the caller holds the scheduler's lock. A method of the scheduler that changes an entry, or asks something of
its task, has the task looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from milestones.common.task.alarms import Alarms, PunctuationAlarms
from milestones.m2_processing_threads.ready_queue import ReadyQueue
from milestones.m2_processing_threads.scheduled_task import Job, ScheduledTask, SchedulerPlace

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.records import TaskId

LOOK_MS = 20
"""The time between two looks at a task that misses records of one of its partitions."""

PATROL, PATROL_MS = 4, 10
"""The number of tasks that one patrol looks at, although nothing was reported about them, and the time between two
patrols."""


class RunnableTasks:
    """*Owns*: `entries`: all tasks of the scheduler; the order in which threads take them."""

    def __init__(self, clock: Clock, slice_ms: int) -> None:
        self._clock = clock
        self.entries: OrderedDict[TaskId, ScheduledTask] = OrderedDict()
        self._maintenance: OrderedDict[ScheduledTask, None] = OrderedDict()
        self._turns = ReadyQueue(slice_ms)
        self._missing_a_partition: dict[ScheduledTask, None] = {}
        self._alarms, self._punctuations = Alarms(), PunctuationAlarms(clock)
        self._patrol_ms = 0
        self.paused: frozenset[int] = frozenset()
        self.held_back: Set[TaskId] = frozenset()

    def __len__(self) -> int:
        """Return the number of tasks that threads could take now."""
        return len(self._maintenance) + len(self._turns)

    def add(self, scheduled: ScheduledTask, now_ms: int) -> None:
        self.entries[scheduled.task.id] = scheduled
        self.look(scheduled, now_ms)

    def remove(self, scheduled: ScheduledTask) -> None:
        del self.entries[scheduled.task.id]
        self._clear(scheduled)
        self._alarms.forget(scheduled.task.id)
        self._punctuations.forget(scheduled.task.id)

    def _clear(self, scheduled: ScheduledTask) -> None:
        self._maintenance.pop(scheduled, None)
        self._turns.discard(scheduled)
        self._missing_a_partition.pop(scheduled, None)

    # -- events

    def look(self, scheduled: ScheduledTask, now_ms: int) -> None:
        """Put the task into the group to which it belongs now; something about it may have changed."""
        if scheduled.lease is not None:
            return
        if scheduled.place is SchedulerPlace.LOCKED and now_ms >= scheduled.locked_until_ms:
            scheduled.release()
        job = self.job(scheduled, now_ms)
        if not (job is Job.TURN or self._is_kept(scheduled, now_ms)):
            scheduled.paused_since_ms = None
        elif scheduled.paused_since_ms is None:
            scheduled.paused_since_ms = now_ms
        if job is Job.TURN:
            self._maintenance.pop(scheduled, None)
            self._missing_a_partition.pop(scheduled, None)
            self._turns.put(scheduled, now_ms)
            return
        self._clear(scheduled)
        if job is None:
            self._wait(scheduled, now_ms)
        else:
            self._maintenance[scheduled] = None

    def look_at(self, ids: Iterable[TaskId], now_ms: int) -> None:
        """Call `look` for each of these tasks that is in `entries`."""
        for id in ids:
            scheduled = self.entries.get(id)
            if scheduled is not None:
                self.look(scheduled, now_ms)

    def look_at_all(self, now_ms: int) -> None:
        for scheduled in self.entries.values():
            self.look(scheduled, now_ms)

    def patrol(self, now_ms: int) -> None:
        """Look at the tasks whose alarm rings, at those that miss a partition, and every `PATROL_MS` at a few
        others."""
        self.look_at_alarms(now_ms)
        for scheduled in list(self._missing_a_partition):
            self.look(scheduled, now_ms)
        if now_ms < self._patrol_ms:
            return
        self._patrol_ms = now_ms + PATROL_MS
        for _ in range(min(PATROL, len(self.entries))):
            id = next(iter(self.entries))
            self.entries.move_to_end(id)
            self.look(self.entries[id], now_ms)

    def look_at_alarms(self, now_ms: int) -> None:
        """Look at the tasks whose alarm rings."""
        self.look_at(self._alarms.ring(now_ms), now_ms)
        self.look_at(self._punctuations.ring(), now_ms)

    def job(self, scheduled: ScheduledTask, now_ms: int) -> Job | None:
        """Return the job that a thread could do for the task; None if there is none. A task that failed has a turn when
        its next try is due, no matter whether a record, a punctuation or a flush failed."""
        task = scheduled.task
        if task.applying:
            return Job.APPLY if now_ms >= scheduled.busy_until_ms else None
        rests = scheduled.failure is not None and now_ms < scheduled.failure.again_ms
        if rests or scheduled.place is SchedulerPlace.LOCKED:
            return None
        if scheduled.flush and scheduled.failure is None:
            return Job.FLUSH
        if not self.is_paused(scheduled):
            if scheduled.failure is not None or not task.initialised:
                return Job.TURN
            if task.punctuation_due(self._clock.wall_ms()) or (not scheduled.full and task.ready(now_ms)):
                return Job.TURN
        due_ms = task.write_due_ms
        return Job.APPLY if due_ms is not None and now_ms >= max(due_ms, scheduled.busy_until_ms) else None

    def is_paused(self, scheduled: ScheduledTask) -> bool:
        id = scheduled.task.id
        return id.subtopology in self.paused or id in self.held_back

    def _is_kept(self, scheduled: ScheduledTask, now_ms: int) -> bool:
        """Return True if the runtime keeps the task from processing its input now: for a commit, until outputs are
        sent, or until a confirmed commit can be applied."""
        id, busy = scheduled.task.id, now_ms < scheduled.busy_until_ms
        kept = scheduled.place is SchedulerPlace.LOCKED or scheduled.full or busy or id in self.held_back
        return kept and id.subtopology not in self.paused and scheduled.task.input.waiting() > 0

    def _wait(self, scheduled: ScheduledTask, now_ms: int) -> None:
        """Set an alarm for the time at which the task may have something to do, if nothing happens to it before."""
        id = scheduled.task.id
        if scheduled.task.applying:
            self._alarms.set(id, scheduled.busy_until_ms)
        elif scheduled.place is SchedulerPlace.LOCKED:
            self._alarms.set(id, scheduled.locked_until_ms)
        elif scheduled.failure is not None and now_ms < scheduled.failure.again_ms:
            if not scheduled.failure.final:
                self._alarms.set(id, scheduled.failure.again_ms)
        else:
            if not self.is_paused(scheduled):
                self._punctuations.set(scheduled.task)
                if not scheduled.full and scheduled.task.input.waiting():
                    self._missing_a_partition[scheduled] = None
                    self._alarms.set(id, now_ms + LOOK_MS)
            if (due_ms := scheduled.task.write_due_ms) is not None:
                self._alarms.set(id, max(due_ms, scheduled.busy_until_ms))

    # -- what is next

    def choose(self, now_ms: int, at_work: int, threads: int) -> tuple[ScheduledTask, Job] | None:
        """Take out the next task, and return it with its job; None when there is nothing to do. Maintenance comes
        before turns. `at_work`: the number of tasks that threads have. `threads`: the number of threads that will be
        free within a slice."""
        while (scheduled := next(iter(self._maintenance), None)) or (
            scheduled := self._turns.choose(now_ms, at_work, threads)
        ):
            job = self.job(scheduled, now_ms)
            if job is None or (job is Job.TURN and scheduled.number is None):
                self.look(scheduled, now_ms)  # it has changed, but no one reported it
            else:
                self._clear(scheduled)
                return scheduled, job
        return None

    def idle_ms(self, now_ms: int, most_ms: int) -> int:
        """Return the ms for which there is nothing to do, unless something happens; at most `most_ms`."""
        due_ms, punctuation_in_ms = self._alarms.next_ms(), self._punctuations.next_in_ms()
        if due_ms is not None:
            most_ms = min(most_ms, due_ms - now_ms)
        if punctuation_in_ms is not None:
            most_ms = min(most_ms, punctuation_in_ms)
        return max(1, most_ms)
