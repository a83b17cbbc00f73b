"""The states of a task, and the moves between them.

                          +--------------+
        +-----------------|   CREATED    |-----------------+
        |                 +--------------+                 |
        v                     ^ none                       v
  +-----------+         +--------------+             +-----------+
  | RESTORING |<------->|  IN_TRANSIT  |<----------->|  STANDBY  |
  +-----------+         +--------------+             +-----------+
        |                     ^                            |
        |                     v                            | (promoted: RESTORING)
        | (rolled back) +--------------+   process   +-----------+
        +<------------->|    READY     |<----------->|  RUNNING  |
                        +--------------+             +-----------+
                          ^    ^   freeze  +--------+      |
                          |    +---------->| LOCKED |      |
                          v                +--------+      v
                        +--------------------------------------+
                        |             QUARANTINED              |
                        +--------------------------------------+

        every state but CLOSED ----> CLOSING ----> CLOSED

*Guarantees*: a task is in exactly one state. A move that isn't in the table is refused as a bug.
*Assumes*: only the task's owner changes its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milestones.common.errors import OwnershipError
from milestones.common.identity_enum import IdentityEnum
from milestones.common.records import TaskId


class TaskState(IdentityEnum):
    """The state of a task."""

    CREATED = "created"
    IN_TRANSIT = "in transit"
    """The task is in a mailbox, between two owners."""
    RESTORING = "restoring"
    STANDBY = "standby"
    READY = "ready"
    """Started, and no thread works on it."""
    RUNNING = "running"
    """A thread processes records of the task, or calls its punctuations."""
    LOCKED = "locked for commit"
    QUARANTINED = "quarantined"
    """The task's user code has failed. The task waits for its next try."""
    CLOSING = "closing"
    CLOSED = "closed"


_S = TaskState

MOVES: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    state: frozenset(targets)
    for state, targets in {
        _S.CREATED: {_S.IN_TRANSIT, _S.RESTORING, _S.STANDBY, _S.CLOSING},
        _S.IN_TRANSIT: {_S.RESTORING, _S.STANDBY, _S.READY, _S.CLOSING},
        _S.RESTORING: {_S.IN_TRANSIT, _S.READY, _S.CLOSING},
        _S.STANDBY: {_S.IN_TRANSIT, _S.RESTORING, _S.CLOSING},
        _S.READY: {_S.RUNNING, _S.LOCKED, _S.IN_TRANSIT, _S.QUARANTINED, _S.RESTORING, _S.CLOSING},
        _S.RUNNING: {_S.READY, _S.QUARANTINED, _S.CLOSING},
        _S.LOCKED: {_S.READY, _S.QUARANTINED, _S.CLOSING},
        _S.QUARANTINED: {_S.READY, _S.CLOSING},
        _S.CLOSING: {_S.CLOSED},
        _S.CLOSED: set(),
    }.items()
}
"""For each state, the states that may follow."""


class Lifecycle:
    """The state of one task."""

    __slots__ = ("_task", "state")

    def __init__(self, task: TaskId) -> None:
        self._task = task
        self.state: TaskState = TaskState.CREATED

    def move(self, target: TaskState) -> None:
        """Move to `target`. Raises `OwnershipError` if the table has no such move."""
        if target not in MOVES[self.state]:
            raise self._bug(f"it can't become {target.value}")
        self.state = target

    def expect(self, *states: TaskState) -> None:
        """Raise `OwnershipError` unless the task is in one of `states`."""
        if self.state not in states:
            raise self._bug(f"it must be {' or '.join(state.value for state in states)} for this")

    def _bug(self, what: str) -> OwnershipError:
        return OwnershipError(f"task {self._task} is {self.state.value}: {what}. This is a bug")
