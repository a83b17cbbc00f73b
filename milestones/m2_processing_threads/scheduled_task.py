"""`ScheduledTask`: the scheduler's entry of a task. `Lease`: the right of a processing thread to work on a task.

    idle <----> leased (a thread works on it)       idle <----> quarantined
     ^  \\
     |   +----> locked (flushed, the stream thread may freeze it)

A task's place has three names, each for its own level:

| `Phase`, of the stream thread | `SchedulerPlace`, of the scheduler | `TaskState`, of the task |
|---|---|---|
| PROCESSING | IDLE | RESTORING until it is initialised, then READY |
| PROCESSING | LEASED | RUNNING in user code, LOCKED in a flush, READY in between |
| PROCESSING | LOCKED | LOCKED |
| PROCESSING | QUARANTINED | QUARANTINED; RESTORING if `init` failed |
| RETURNING, LEAVING | none: the scheduler gives it back | RUNNING until its call returns; then READY or CLOSED |

*Guarantees*: a task has one place. A lease names the thread that has the task, and its deadline. The thread looks at
`stop` between two batches; `interrupt` ends a batch between two records.
*Assumes*: an entry is read and written only under the scheduler's lock. There are two exceptions: the owner of a lease
writes the lease's `limit`, `full` and `pause_ms`, and reads `failure` and `close_mode` of its entry.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from milestones.common.identity_enum import IdentityEnum
from milestones.common.task.lifecycle import TaskState

if TYPE_CHECKING:
    from milestones.common.task.task import Task
    from milestones.m2_processing_threads.quarantine import TaskFailure
    from milestones.parts import CloseMode


class SchedulerPlace(IdentityEnum):
    """The place of a task in the scheduler."""

    IDLE = "idle"
    LEASED = "leased"
    LOCKED = "locked for commit"
    QUARANTINED = "quarantined"


class Job(enum.Enum):
    """The job of a lease, the most urgent first."""

    LEAVE = "apply what is confirmed, then close the task as its close mode says"
    APPLY = "apply what is confirmed"
    FLUSH = "flush the caches"
    TURN = "initialise, punctuate, process"


class Lease:
    """The right of the thread `owner` to work on a task, until `deadline_ms`. A record in work may end later."""

    __slots__ = (
        "_before", "deadline_ms", "full", "job", "limit", "output_bytes", "owner", "pause_ms", "scheduled", "stop",
        "task",
    )  # fmt: skip

    deadline_ms: int
    """Monotonic time."""
    full: bool
    """True if there is no more room for outputs of the task."""
    job: Job
    owner: str
    """The name of the thread."""
    scheduled: ScheduledTask
    stop: bool
    """True if no other batch may begin."""
    task: Task

    def __init__(self, scheduled: ScheduledTask, job: Job, owner: str, deadline_ms: int) -> None:
        self.scheduled, self.task, self.job = scheduled, scheduled.task, job
        self.owner, self.deadline_ms = owner, deadline_ms
        self.limit: int = scheduled.limit
        """The number of records in the next batch."""
        self.stop = self.full = False
        self.pause_ms: int = 0
        """How long the task must wait before its confirmed commit is applied, because its engine is busy; 0 if it
        isn't."""
        self.output_bytes: int | None = None
        """The bytes of outputs that the task held after the last batch; None before the first batch."""
        self._before = self.task.counters.processed

    @property
    def processed(self) -> int:
        """The number of records processed under this lease so far."""
        return self.task.counters.processed - self._before

    def end(self) -> None:
        """Have the owner give the task back at the next record's boundary. A batch that is just beginning may miss the
        interruption, so `Scheduler.wake` repeats it. Any thread may call this."""
        self.stop = True
        self.task.interrupt()


class ScheduledTask:
    """The scheduler's entry of one task. `close_mode`: set if the task must be given back. `flush`: True if its caches
    must be flushed. `missed`: True if, moreover, a commit has already left the task out. `full`: True if its outputs
    have filled their buffer. `busy_until_ms`: when a confirmed commit is applied once more, because the engine was
    busy; 0 while it isn't. `limit`: the number of records per batch. `paused_since_ms`: since when the task has had
    input but no thread, for any reason; None otherwise.

    Three fields belong to the `ReadyQueue`: `number`, None while the task isn't in the queue; `since_ms`, since when
    the task has been ready; `load`, its number of records times its weight."""

    __slots__ = (
        "busy_until_ms",
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
        "paused_since_ms",
        "place",
        "since_ms",
        "task",
        "weight",
    )  # fmt: skip

    flush: bool
    full: bool
    load: int
    missed: bool
    since_ms: int
    task: Task
    weight: int

    def __init__(self, task: Task, weight: int) -> None:
        self.task, self.weight = task, weight
        self.place: SchedulerPlace = SchedulerPlace.IDLE
        self.lease: Lease | None = None
        self.close_mode: CloseMode | None = None
        self.flush = self.missed = self.full = False
        self.failure: TaskFailure | None = None
        self.number: int | None = None
        self.since_ms = self.load = 0
        self.locked_until_ms: int = 0
        self.busy_until_ms: int = 0
        self.paused_since_ms: int | None = None
        self.limit: int = 1

    def quarantine(self, failure: TaskFailure) -> None:
        if self.task.state is TaskState.READY:
            self.task.lifecycle.move(TaskState.QUARANTINED)
        self.failure, self.place = failure, SchedulerPlace.QUARANTINED

    def lock(self, until_ms: int) -> None:
        """Let no thread work on the task until `release` is called, or until `until_ms`."""
        self.place, self.locked_until_ms = SchedulerPlace.LOCKED, until_ms
        self.task.lifecycle.move(TaskState.LOCKED)

    def release(self) -> None:
        """Take the task out of quarantine, or unlock it."""
        if self.task.state in (TaskState.QUARANTINED, TaskState.LOCKED):
            self.task.lifecycle.move(TaskState.READY)
        self.place = SchedulerPlace.IDLE
