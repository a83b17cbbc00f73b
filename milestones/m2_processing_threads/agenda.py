"""What threads could do now, and when there will be more: one look at a task whenever something has happened to it.

    something has happened ---> look ---> errands   (apply, flush)
    or an alarm rings                 |-> turns     (initialise, punctuate, process)
                                      |-> halves    (records wait for those of another partition)
                                      +-> nowhere, but for its next alarm: punctuation, next try, end of a lock

*Guarantees*: what a lease costs grows with the logarithm of how many tasks are ready, and not with how many have
nothing to do. A task that a thread has is nowhere; who gives it back has it looked at. If nobody told of what happened
to a task, a patrol finds it: each call looks at a few tasks, in turns.
*Assumes*: under the scheduler's lock; who changes an entry, or asks something of its task, has it looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from milestones.common.task.alarms import Alarms, PunctuationAlarms
from milestones.m2_processing_threads.ready_queue import ReadyQueue
from milestones.m2_processing_threads.scheduled_task import Job, Place, ScheduledTask

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.records import TaskId

LOOK_MS = 20
"""How often a task is looked at whose records wait for those of another of its partitions."""

PATROL = 4
"""Tasks of which nobody has told anything that one patrol looks at."""


class Agenda:
    """*Owns*: `entries`, all tasks that the scheduler has; which of them are next."""

    def __init__(self, clock: Clock, slice_ms: int) -> None:
        self._clock = clock
        self.entries: OrderedDict[TaskId, ScheduledTask] = OrderedDict()
        self._errands: OrderedDict[ScheduledTask, None] = OrderedDict()
        self._turns = ReadyQueue(slice_ms)
        self._halves: dict[ScheduledTask, None] = {}
        self._alarms, self._punctuations = Alarms(), PunctuationAlarms(clock)
        self.paused: frozenset[int] = frozenset()

    def __len__(self) -> int:
        """How many tasks a thread could take now."""
        return len(self._errands) + len(self._turns)

    def add(self, scheduled: ScheduledTask, now_ms: int) -> None:
        self.entries[scheduled.task.id] = scheduled
        self.look(scheduled, now_ms)

    def remove(self, scheduled: ScheduledTask) -> None:
        del self.entries[scheduled.task.id]
        self._clear(scheduled)
        self._alarms.forget(scheduled.task.id)
        self._punctuations.forget(scheduled.task.id)

    def _clear(self, scheduled: ScheduledTask) -> None:
        self._errands.pop(scheduled, None)
        self._turns.discard(scheduled)
        self._halves.pop(scheduled, None)

    # -- what happens

    def look(self, scheduled: ScheduledTask, now_ms: int) -> None:
        """Something about the task may have changed."""
        if scheduled.lease is not None:
            return
        if scheduled.place is Place.LOCKED and now_ms >= scheduled.locked_until_ms:
            scheduled.release()
        job = self.job(scheduled, now_ms)
        if job is Job.TURN:
            self._errands.pop(scheduled, None)
            self._halves.pop(scheduled, None)
            self._turns.put(scheduled, now_ms)
            return
        self._clear(scheduled)
        if job is None:
            self._wait(scheduled, now_ms)
        else:
            self._errands[scheduled] = None

    def look_at(self, ids: Iterable[TaskId], now_ms: int) -> None:
        """The same for those of these tasks that are here."""
        for id in ids:
            scheduled = self.entries.get(id)
            if scheduled is not None:
                self.look(scheduled, now_ms)

    def look_at_all(self, now_ms: int) -> None:
        for scheduled in self.entries.values():
            self.look(scheduled, now_ms)

    def look_around(self, now_ms: int) -> None:
        """Look at what time has brought, and, in turns, at a few others."""
        self.ring(now_ms)
        for scheduled in list(self._halves):
            self.look(scheduled, now_ms)
        for _ in range(min(PATROL, len(self.entries))):
            id = next(iter(self.entries))
            self.entries.move_to_end(id)
            self.look(self.entries[id], now_ms)

    def ring(self, now_ms: int) -> None:
        """Look at what time has brought."""
        self.look_at(self._alarms.ring(now_ms), now_ms)
        self.look_at(self._punctuations.ring(), now_ms)

    def job(self, scheduled: ScheduledTask, now_ms: int) -> Job | None:
        """What a thread could do about the task."""
        task = scheduled.task
        if task.applying:
            return Job.APPLY
        if scheduled.place is Place.LOCKED or (scheduled.failure is not None and now_ms < scheduled.failure.again_ms):
            return None
        if scheduled.flush and scheduled.failure is None:
            return Job.FLUSH
        if self.is_paused(scheduled):
            return None
        if scheduled.failure is not None or not task.initialised:
            return Job.TURN
        ready = task.punctuation_due(self._clock.wall_ms()) or (not scheduled.full and task.ready(now_ms))
        return Job.TURN if ready else None

    def is_paused(self, scheduled: ScheduledTask) -> bool:
        return scheduled.task.id.subtopology in self.paused

    def _wait(self, scheduled: ScheduledTask, now_ms: int) -> None:
        """There is nothing to do about the task until time has passed, or something happens to it."""
        id = scheduled.task.id
        if scheduled.place is Place.LOCKED:
            self._alarms.set(id, scheduled.locked_until_ms)
        elif scheduled.failure is not None and now_ms < scheduled.failure.again_ms:
            if not scheduled.failure.final:
                self._alarms.set(id, scheduled.failure.again_ms)
        elif not self.is_paused(scheduled):
            self._punctuations.set(scheduled.task)
            if not scheduled.full and scheduled.task.input.waiting():
                self._halves[scheduled] = None
                self._alarms.set(id, now_ms + LOOK_MS)

    # -- what is next

    def choose(self, now_ms: int, at_work: int, threads: int) -> tuple[ScheduledTask, Job] | None:
        """A task, which is to be taken, and what for; None when there is nothing to do. `at_work`: tasks that threads
        have; `threads`: those that will be free within a slice."""
        while (scheduled := next(iter(self._errands), None)) or (
            scheduled := self._turns.choose(now_ms, at_work, threads)
        ):
            job = self.job(scheduled, now_ms)
            if job is None or (job is Job.TURN and scheduled.number is None):
                self.look(scheduled, now_ms)  # nobody told what it is about by now
            else:
                self._clear(scheduled)
                return scheduled, job
        return None

    def idle_ms(self, now_ms: int, most_ms: int) -> int:
        """How long there is nothing to do, if nothing happens."""
        due_ms, punctuation_in_ms = self._alarms.next_ms(), self._punctuations.next_in_ms()
        if due_ms is not None:
            most_ms = min(most_ms, due_ms - now_ms)
        if punctuation_in_ms is not None:
            most_ms = min(most_ms, punctuation_in_ms)
        return max(1, most_ms)
