"""What the scheduler knows of one task, and the lease by which somebody has it.

    idle <----> leased (a thread works on it)       idle <----> quarantined
     ^  \\
     |   +----> locked (flushed, the stream thread may freeze it)

*Guarantees*: a task has one place. A lease says who has the task and until when; whoever has it looks at `stop` between
two batches of records.
*Assumes*: an entry is touched under the scheduler's lock only; of a lease the owner writes `limit` and
`full`, and of its entry the owner reads `failure` and `close_mode`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from milestones.common.task.lifecycle import State

if TYPE_CHECKING:
    from milestones.common.task.task import Task
    from milestones.m2_processing_threads.quarantine import TaskFailure
    from milestones.parts import CloseMode


class Place(enum.Enum):
    """Where a task is, as far as the scheduler has it."""

    IDLE = "idle"
    LEASED = "leased"
    LOCKED = "locked for commit"
    QUARANTINED = "quarantined"

    __hash__ = object.__hash__


class Job(enum.Enum):
    """What a lease is for; what comes first is done first."""

    LEAVE = "apply what is confirmed, then the task's fate"
    APPLY = "apply what is confirmed"
    FLUSH = "flush the caches"
    TURN = "initialise, punctuate, process"


class Lease:
    """A task in the hands of `owner`, who gives it back at `deadline_ms` (monotonic), or at the end of the record that
    is in work then. `limit`: records of the first batch."""

    __slots__ = ("_before", "deadline_ms", "full", "job", "limit", "owner", "scheduled", "stop", "task")

    def __init__(self, scheduled: ScheduledTask, job: Job, owner: str, deadline_ms: int) -> None:
        self.scheduled, self.task, self.job = scheduled, scheduled.task, job
        self.owner, self.deadline_ms = owner, deadline_ms
        self.limit = scheduled.limit
        self.stop = self.full = False
        self._before = self.task.counters.processed

    @property
    def processed(self) -> int:
        """Records so far."""
        return self.task.counters.processed - self._before

    def end(self) -> None:
        """Have the owner give it back at the next record's boundary. Any thread may call it."""
        self.stop = True
        self.task.interrupt()


class ScheduledTask:
    """One task. `close_mode`: it is to be given back; `flush`: its caches are to be flushed; `missed`: and a commit
    went without it; `full`: its outputs have filled their buffer; `limit`: records per batch. Of the `ReadyQueue`:
    `number`, None while it isn't in there; `since_ms`, since when it was ready last; `load`, what it had to do."""

    __slots__ = (
        "close_mode",
        "failure",
        "flush",
        "full",
        "lease",
        "limit",
        "load",
        "locked_until_ms",
        "missed",
        "number",
        "place",
        "since_ms",
        "task",
        "weight",
    )  # fmt: skip

    def __init__(self, task: Task, weight: int) -> None:
        self.task, self.weight = task, weight
        self.place = Place.IDLE
        self.lease: Lease | None = None
        self.close_mode: CloseMode | None = None
        self.flush = self.missed = self.full = False
        self.failure: TaskFailure | None = None
        self.number: int | None = None
        self.since_ms = self.load = 0
        self.locked_until_ms = 0
        self.limit = 1

    def quarantine(self, failure: TaskFailure) -> None:
        if self.task.state is State.READY:
            self.task.lifecycle.move(State.QUARANTINED)
        self.failure, self.place = failure, Place.QUARANTINED

    def lock(self, until_ms: int) -> None:
        """Nobody works on it until it is committed, or then."""
        self.place, self.locked_until_ms = Place.LOCKED, until_ms
        self.task.lifecycle.move(State.LOCKED)

    def release(self) -> None:
        """Out of quarantine, or of the lock."""
        if self.task.state in (State.QUARANTINED, State.LOCKED):
            self.task.lifecycle.move(State.READY)
        self.place = Place.IDLE
