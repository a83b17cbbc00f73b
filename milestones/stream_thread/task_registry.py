"""The register of a stream thread's tasks: where each is, and where it may go from there.

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
    """Where a task of the thread is."""

    WAITING = "waiting"
    """For its stores to be opened, and for a lock that another thread holds."""
    OPENING = "opening"
    """`StoreOpening` opens its stores."""
    POSITIONING = "positioning"
    """Its committed offsets aren't known yet."""
    RESTORING = "restoring"
    """`Restoration` has it."""
    STARTING = "starting"
    """`Inputs` finds out where its input begins."""
    PROCESSING = "processing"
    """`Processing` has it."""
    RETURNING = "returning"
    """`Processing` is to give it back, for a roll-back."""
    STANDBY = "standby"
    """`Restoration` keeps it up."""
    LEAVING = "leaving"
    """It was taken away, and the part that has it hasn't given it back, or its stores aren't closed yet."""
    ENDED = "ended"
    """It has failed for good, and nothing of it is open; the thread still has it."""
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
"""Phase -> the phases it may move to."""

PREPARED: Final = (_P.POSITIONING, _P.RESTORING, _P.STARTING, _P.RETURNING)
"""An active task is in one of these when its stores are open, and it doesn't process yet, or not any more."""

OPENED: Final = (*PREPARED, _P.PROCESSING)
"""An active task is in one of these from when it is made until it leaves."""


@dataclass(eq=False)
class TaskFailed:
    """Why a task is given up. `void`: what it has done since its last commit mustn't be committed; `hastened`: a commit
    was asked for. `again_ms`: when it is opened anew, once that is `decided`; None: it isn't."""

    error: BaseException
    void: bool = False
    hastened: bool = False
    decided: bool = False
    again_ms: int | None = None


@dataclass(frozen=True)
class Role:
    """What a task is to be: active, with these input partitions; with None a standby."""

    partitions: frozenset[TopicPartition] | None

    @property
    def active(self) -> bool:
        return self.partitions is not None


STANDBY: Final = Role(None)


@dataclass(eq=False, slots=True)
class AssignedTask:
    """A task of the thread. `role`: what it is to be, None: nothing any more. `task`: from the moment when it is made
    until it leaves. `stores`: open ones that it is to be made of."""

    id: TaskId
    role: Role | None
    phase: Phase = Phase.WAITING
    task: Task | StandbyTask | None = None
    stores: TaskStorage | None = None
    committed: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    rolled_back: bool = False
    locked_out: bool = False
    next_try_ms: int = 0
    """When a task that was locked out is reopened."""
    damage: dict[str, object] = field(default_factory=dict)
    """By store that isn't to be trusted: why."""
    failure: TaskFailed | None = None
    """Why it is given up, if it has failed for good."""
    position: int | None = None
    """The sum of its changelogs' offsets, while it leaves, as far as it is known."""

    @property
    def active(self) -> bool:
        """Whether it is to be active, or is."""
        return self.role is not None and self.role.active

    @property
    def wanted(self) -> bool:
        """Whether it is to be made, or stay: it has a role, and hasn't failed."""
        return self.role is not None and self.failure is None

    @property
    def active_task(self) -> Task:
        """The task, of an active one that is open."""
        return cast("Task", self.task)

    def forget(self) -> None:
        """Reset the entry for its next life. The damage of its stores stays: they still have to be set aside."""
        self.task, self.committed = None, {}
        self.rolled_back, self.locked_out, self.position = False, False, None


class TaskRegistry:
    """*Owns*: an `AssignedTask` of each task of the thread. `moves`: how many there were."""

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
        """The tasks in phase PROCESSING: a view, which follows."""
        return MappingProxyType(self._processing)

    def places(self) -> dict[TaskId, Phase]:
        return {entry.id: entry.phase for entry in self._tasks.values()}

    def enter(self, id: TaskId, role: Role) -> None:
        """A task that isn't here yet: it waits."""
        if id in self._tasks:
            raise OwnershipError(f"task {id} is entered twice. This is a bug")
        self._tasks[id] = self._phases[Phase.WAITING][id] = AssignedTask(id, role)
        self.moves += 1

    def move(self, entry: AssignedTask, phase: Phase) -> None:
        """Have the task in this phase from now on; `OwnershipError` when the table has no such move."""
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
