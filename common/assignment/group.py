"""The group as an assignor sees it: its processes, the owners of tasks, and the state that each process has of each
task.

*Guarantees*: results don't depend on the order of the members.
*Assumes*: a process reports each task's position once, or its members' reports of it agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Members
from milestones.common.records import TaskId

Lag = tuple[int, int]
"""A sort key of processes by the amount that they would have to restore. Known lags come first, then known positions
(the highest first), then processes without state."""

NOTHING: Lag = (2, 0)


@dataclass(frozen=True)
class ProcessState:
    """An instance, whose members share a state directory. `keeps_copies`: True if it can have standbys and warm-ups."""

    name: str
    members: tuple[str, ...]
    capacity: int
    tags: Mapping[str, str]
    keeps_copies: bool = True


def owners(members: Members, tasks: Iterable[TaskId]) -> dict[TaskId, str]:
    """Return the live owner of each task. If two members claim a task, the one with the later generation owns it."""
    known = set(tasks)
    return {task: name for name in _by_generation(members) for task in members[name].active if task in known}


def heirs(members: Members, owner: Mapping[TaskId, str]) -> dict[TaskId, str]:
    """Return the member to which a task without an owner was promised, by task."""
    return {task: name for name in _by_generation(members) for task in members[name].promised if task not in owner}


def _by_generation(members: Members) -> list[str]:
    """Return the members by generation, so that a later claim replaces an earlier one."""
    return sorted(members, key=lambda name: (members[name].generation, name))


class Processes:
    """*Owns*: tables that are computed once from the members.

    `owner`: the member that runs a task. `home`: the owner's process. `heir`: the member to which a task without an
    owner was promised. `next_home`: the heir's process. `keepers`: the processes that can have standbys and warm-ups.
    `opened`: for each task and process, the member with an open standby of the task.
    """

    next_home: dict[TaskId, str]

    def __init__(self, members: Members, plan: TaskPlan, acceptable_recovery_lag: int) -> None:
        self._acceptable = acceptable_recovery_lag
        grouped: dict[str, list[str]] = defaultdict(list)
        for name in sorted(members):
            grouped[members[name].process_id].append(name)
        self.all: dict[str, ProcessState] = {
            id: ProcessState(
                id,
                tuple(names),
                sum(members[n].capacity for n in names),
                members[names[0]].client_tags,
                all(members[n].keeps_copies for n in names),
            )
            for id, names in sorted(grouped.items())
        }
        self.keepers: frozenset[str] = frozenset(id for id, process in self.all.items() if process.keeps_copies)
        self.capacities: dict[str, int] = {id: process.capacity for id, process in self.all.items()}
        self.owner: dict[TaskId, str] = owners(members, plan.tasks)
        self.home: dict[TaskId, str] = {task: members[name].process_id for task, name in self.owner.items()}
        self.heir: dict[TaskId, str] = heirs(members, self.owner)
        self.next_home = {task: members[name].process_id for task, name in self.heir.items() if task in plan.tasks}
        self.opened: dict[TaskId, dict[str, str]] = defaultdict(dict)
        self._lags: dict[str, dict[TaskId, int]] = {id: {} for id in self.all}
        self._positions: dict[str, dict[TaskId, int]] = {id: {} for id in self.all}
        for name in sorted(members):
            self._read(name, members)

    def _read(self, name: str, members: Members) -> None:
        member = members[name]
        for task in sorted(member.standby):
            self.opened[task].setdefault(member.process_id, name)
        lags, positions = self._lags[member.process_id], self._positions[member.process_id]
        for task, lag in member.lags.items():
            lags[task] = min(lag, lags.get(task, lag))
        for task, position in member.positions.items():
            positions[task] = max(position, positions.get(task, position))
        # A restoring task has a position. A running task has its whole state, so that its lag is 0.
        lags.update((t, 0) for t in member.active if self.owner.get(t) == name and t not in member.positions)

    def lag(self, task: TaskId, process: str) -> Lag:
        """Return how much this process would have to restore. All processes that are caught up have the same lag."""
        lag = self._lags[process].get(task)
        if lag is not None:
            return (0, 0 if lag <= self._acceptable else lag)
        position = self._positions[process].get(task)
        return NOTHING if position is None else (1, -position)

    def caught_up(self, task: TaskId, process: str) -> bool:
        return self._lags[process].get(task, self._acceptable + 1) <= self._acceptable

    def is_open(self, task: TaskId, process: str) -> bool:
        """True if the process has an open standby of the task."""
        return process in self.opened.get(task, ())
