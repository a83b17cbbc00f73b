"""The group as an assignor sees it: processes, the owners of tasks, the state that each process has of each task.

*Guarantees*: answers depend on the members only, not on the order in which they come.
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
"""Orders processes by what they would have to restore: known lags, then positions (the highest first), then nothing."""

NOTHING: Lag = (2, 0)


@dataclass(frozen=True)
class ProcessState:
    """An instance: its members share a state directory. `keeps_copies`: it can have standbys and warm-ups."""

    name: str
    members: tuple[str, ...]
    capacity: int
    tags: Mapping[str, str]
    keeps_copies: bool = True


def owners(members: Members, tasks: Iterable[TaskId]) -> dict[TaskId, str]:
    """The live owner of each task. Of two that claim one, the later generation is right, the other will lose it."""
    known = set(tasks)
    return {task: name for name in _by_generation(members) for task in members[name].active if task in known}


def heirs(members: Members, owner: Mapping[TaskId, str]) -> dict[TaskId, str]:
    """The member to which a task without an owner was promised, by task."""
    return {task: name for name in _by_generation(members) for task in members[name].promised if task not in owner}


def _by_generation(members: Members) -> list[str]:
    """The members by generation: a later member's claim replaces an earlier one's."""
    return sorted(members, key=lambda name: (members[name].generation, name))


class Processes:
    """*Owns*: tables made once from the members.

    `owner` is the member that runs a task, `home` its process; `heir` is the member to which a task without an owner
    was promised, `next_home` its process; `keepers`: the processes that can have standbys and warm-ups; `opened`: by
    task, the members with an open standby of it, by process.
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
        # A task that restores has a position, one that runs has all there is.
        lags.update((t, 0) for t in member.active if self.owner.get(t) == name and t not in member.positions)

    def lag(self, task: TaskId, process: str) -> Lag:
        """How much this process would have to restore. All that are caught up are equal."""
        lag = self._lags[process].get(task)
        if lag is not None:
            return (0, 0 if lag <= self._acceptable else lag)
        position = self._positions[process].get(task)
        return NOTHING if position is None else (1, -position)

    def caught_up(self, task: TaskId, process: str) -> bool:
        return self._lags[process].get(task, self._acceptable + 1) <= self._acceptable

    def is_open(self, task: TaskId, process: str) -> bool:
        """True if it has a standby open there."""
        return process in self.opened.get(task, ())
