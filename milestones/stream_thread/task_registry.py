"""The register of a stream thread's tasks has the phase of each task, and the table of allowed moves.

          +-------------+  stores   +---------+
  ------->|   WAITING   |---------->| OPENING |          a task's own places: `common/task/lifecycle.py`
          |             |<----------|         |          places of a task that processes: `Processing`
          +-------------+           +---------+
            |    ^    | active, stores open               standby, stores open
            |    |    +------------------+--------------------------------------+
            |    |                       v                                      v
            |    |               +-------------+                          +-----------+
            |    |               | POSITIONING |<---------------+         |  STANDBY  |
            |    |               +-------------+                |         +-----------+
            |    |      has all    |    |  lacks records   +-----------+        |
            |    |                 |    v                  | RETURNING |        |
            |    |                 | +-----------+         +-----------+        |
            |    |                 | | RESTORING |               ^              |
            |    |                 v +-----------+               | rolled back  |
            |    |        +----------+  |                 +------------+        |
            |    |        | STARTING |<-+ --------------->| PROCESSING |        |
            |    |        +----------+                    +------------+        |
            |    |                                                              |
            |    | wanted again    +---------+    taken away, from everywhere   |
            |    +-----------------| LEAVING |<---------------------------------+
            |                      +---------+
            v  nothing of it is open    |
          +------+                      |  has failed   +-------+
          | GONE |<---------------------+-------------->| ENDED |---> WAITING, GONE
          +------+                                      +-------+

*Guarantees*: a task of a thread is in exactly one phase; a move that isn't in the table is refused, as a bug.
*Assumes*: one owner, the stream thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from milestones.common.errors import OwnershipError
from milestones.common.identity_enum import IdentityEnum

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task, TaskStorage


class Phase(IdentityEnum):
    """The phase of a task in its thread."""

    WAITING = "waiting"
    """The task waits until its stores are opened, or until another thread frees the task's lock."""
    OPENING = "opening"
    """`StoreOpening` opens the task's stores."""
    POSITIONING = "positioning"
    """The task's committed offsets aren't known yet."""
    RESTORING = "restoring"
    """`Restoration` restores the task."""
    STARTING = "starting"
    """`Inputs` finds out where the task's input begins."""
    PROCESSING = "processing"
    """`Processing` processes the task."""
    RETURNING = "returning"
    """`Processing` was asked to give the task back, so that the task can be rolled back."""
    STANDBY = "standby"
    """`Restoration` keeps the standby's stores up to date."""
    LEAVING = "leaving"
    """The task was taken away, but a part hasn't given it back yet, or the task's stores aren't closed yet."""
    ENDED = "ended"
    """The task has failed for good. The thread still has the task, but nothing of the task is open."""
    GONE = "gone"


_P = Phase

MOVES: Final[Mapping[Phase, frozenset[Phase]]] = {
    phase: frozenset(targets)
    for phase, targets in {
        _P.WAITING: {_P.OPENING, _P.POSITIONING, _P.STANDBY, _P.LEAVING, _P.ENDED, _P.GONE},
        _P.OPENING: {_P.WAITING, _P.LEAVING},
        _P.POSITIONING: {_P.RESTORING, _P.STARTING, _P.LEAVING},
        _P.RESTORING: {_P.STARTING, _P.LEAVING},
        _P.STARTING: {_P.PROCESSING, _P.LEAVING},
        _P.PROCESSING: {_P.RETURNING, _P.LEAVING},
        _P.RETURNING: {_P.POSITIONING, _P.LEAVING},
        _P.STANDBY: {_P.LEAVING},
        _P.LEAVING: {_P.WAITING, _P.ENDED, _P.GONE},
        _P.ENDED: {_P.WAITING, _P.GONE},
        _P.GONE: set[Phase](),
    }.items()
}
"""For each phase, the phases to which a task may move from there."""

PREPARED: Final = (_P.POSITIONING, _P.RESTORING, _P.STARTING, _P.RETURNING)
"""The phases in which an active task has open stores, but isn't processed yet, or isn't processed any more."""

OPENED: Final = (*PREPARED, _P.PROCESSING)
"""The phases of an active task from when it is made until it leaves."""


@dataclass(eq=False)
class TaskFailed:
    """Why a task is given up. `void`: True if the task's work since the last commit mustn't be committed. `hastened`:
    True if a commit was asked for. `decided`: True if the decision about the task is known. `again_ms`: when the task
    is opened anew; None if it isn't."""

    error: BaseException
    void: bool = False
    hastened: bool = False
    decided: bool = False
    again_ms: int | None = None


@dataclass(frozen=True)
class Role:
    """The role of a task: active, with these input partitions, or a standby, if `partitions` is None."""

    partitions: frozenset[TopicPartition] | None

    @property
    def active(self) -> bool:
        return self.partitions is not None


STANDBY: Final = Role(None)


@dataclass(eq=False, slots=True)
class AssignedTask:
    """A task of the thread. `role`: its role; None if the thread should no longer have it. `task`: the task object,
    from when it is made until it leaves. `stores`: open stores of which it will be made."""

    id: TaskId
    role: Role | None
    phase: Phase = Phase.WAITING
    task: Task | StandbyTask | None = None
    stores: TaskStorage | None = None
    committed: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    rolled_back: bool = False
    locked_out: bool = False
    next_try_ms: int = 0
    """When the thread tries once more to open a task whose directory another thread has locked."""
    damage: dict[str, object] = field(default_factory=dict)
    """The stores that are damaged, each with the reason."""
    failure: TaskFailed | None = None
    """Why the task is given up, if it has failed for good."""
    position: int | None = None
    """While the task leaves: the sum of its changelogs' offsets; None if it isn't known."""

    @property
    def active(self) -> bool:
        """True if the task's role is that of an active task."""
        return self.role is not None and self.role.active

    @property
    def wanted(self) -> bool:
        """True if the thread should have the task: it has a role, and hasn't failed."""
        return self.role is not None and self.failure is None

    @property
    def active_task(self) -> Task:
        """The task object of an active task that is open."""
        return cast("Task", self.task)

    def forget(self) -> None:
        """Reset the entry for its next life. The damage of its stores stays: they still have to be set aside."""
        self.task, self.committed = None, {}
        self.rolled_back, self.locked_out, self.position = False, False, None


class TaskRegistry:
    """*Owns*: one `AssignedTask` for each task of the thread. `moves`: the number of moves so far."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, AssignedTask] = {}
        self._phases: dict[Phase, dict[TaskId, AssignedTask]] = {phase: {} for phase in Phase}
        self._processing: dict[TaskId, Task] = {}
        self.moves: int = 0

    def __iter__(self) -> Iterator[AssignedTask]:
        return iter(list(self._tasks.values()))

    def get(self, id: TaskId) -> AssignedTask | None:
        return self._tasks.get(id)

    def __getitem__(self, id: TaskId) -> AssignedTask:
        return self._tasks[id]

    def of(self, *phases: Phase) -> list[AssignedTask]:
        return [entry for phase in phases for entry in self._phases[phase].values()]

    def any(self, *phases: Phase) -> bool:
        return any(self._phases[phase] for phase in phases)

    @property
    def processing(self) -> Mapping[TaskId, Task]:
        """The tasks in phase PROCESSING: a view that changes with the registry."""
        return MappingProxyType(self._processing)

    def places(self) -> dict[TaskId, Phase]:
        return {entry.id: entry.phase for entry in self._tasks.values()}

    def enter(self, id: TaskId, role: Role) -> None:
        """Add a task that isn't in the registry yet, in phase WAITING."""
        if id in self._tasks:
            raise OwnershipError(f"task {id} is entered twice. This is a bug")
        self._tasks[id] = self._phases[Phase.WAITING][id] = AssignedTask(id, role)
        self.moves += 1

    def move(self, entry: AssignedTask, phase: Phase) -> None:
        """Move the task to this phase. Raises `OwnershipError` when the table has no such move."""
        if phase not in MOVES[entry.phase]:
            raise OwnershipError(f"task {entry.id} is {entry.phase.value}: it can't be {phase.value}. This is a bug")
        del self._phases[entry.phase][entry.id]
        self._processing.pop(entry.id, None)
        entry.phase = phase
        if phase in (Phase.LEAVING, Phase.GONE):
            entry.forget()
        if phase is Phase.GONE:
            del self._tasks[entry.id]
        else:
            self._phases[phase][entry.id] = entry
        if phase is Phase.PROCESSING:
            self._processing[entry.id] = entry.active_task
        self.moves += 1
