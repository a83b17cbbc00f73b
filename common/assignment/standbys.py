"""Chooses the processes for standbys: where they should be after all moves.

*Guarantees*: each stateful task gets `num_standby_replicas`, as far as there are other processes that keep copies. A
standby shares as few `rack_aware_assignment_tags` as possible with the task's other copies (KIP-708). Workers of one
command share one tag more, because they run on one machine and end together. Among places with equal tags, each
process gets its share by capacity, as far as single exchanges can reach this. A standby stays where it is unless a move
improves the tags or the balance. The same input leads to the same result, and the result as input leads to itself.

*How*: start with the open standbys, add the missing ones, then improve step by step. Every step makes the number of
equal tags smaller, or keeps it and improves the balance. So the search ends.

*Assumes*: `target` has the processes where the tasks will be active, and `dealer` has dealt the active tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from milestones.common.assignment.balance import QuotaDealer
from milestones.common.assignment.group import Processes
from milestones.common.assignment.machines import COMMAND_TAG
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Rules
from milestones.common.records import TaskId


def wanted_standbys(
    processes: Processes, plan: TaskPlan, rules: Rules, target: Mapping[TaskId, str], dealer: QuotaDealer
) -> dict[TaskId, list[str]]:
    """Return the processes that should have a standby of each stateful task. The target of a task is never one of them.
    """
    keepers = processes.keepers
    tasks = sorted(plan.stateful)
    copies = {task: min(rules.num_standby_replicas, len(keepers - {target[task]})) for task in tasks}
    if not any(copies.values()):
        return {}
    # A warm-up on the target isn't counted, as it will become the active task.
    held = Counter(id for task in tasks for id in processes.opened.get(task, ()) if id != target[task])
    dealer.next_kind()
    search = _Search(processes, rules, target, dealer.among(keepers).deal(sum(copies.values()), held))
    for task in tasks:
        search.keep(task, copies[task])
    for task in tasks:
        search.fill(task, copies[task])
    while search.spread(tasks) or search.balance():
        pass
    return search.found


class _Search:
    """*Owns*: the standbys found so far, by task, and their number, by process."""

    def __init__(
        self, processes: Processes, rules: Rules, target: Mapping[TaskId, str], shares: Mapping[str, int]
    ) -> None:
        self._processes, self._target, self._shares = processes, target, shares
        self._places = {
            id: tuple(process.tags.get(tag) for tag in (*rules.rack_aware_assignment_tags, COMMAND_TAG))
            for id, process in processes.all.items()
        }
        kinds = set(self._places.values())
        self._equal = {one: {other: equal_tags(one, other) for other in kinds} for one in kinds}
        self._loads = {id: 0 for id in processes.all if id in processes.keepers}
        self.found: dict[TaskId, list[str]] = {}

    def keep(self, task: TaskId, copies: int) -> None:
        """Keep the open standbys. If there are too many, keep those whose tags differ most."""
        self.found[task] = []
        opened = [
            id for id in sorted(self._processes.opened.get(task, ())) if id in self._loads and id != self._target[task]
        ]
        while opened and len(self.found[task]) < copies:
            alike = self._alike(task)
            best = min(opened, key=lambda id: (alike[self._places[id]], self._loads[id] >= self._shares[id], id))
            opened.remove(best)
            self._add(task, best)

    def fill(self, task: TaskId, copies: int) -> None:
        if len(self.found[task]) == copies:
            return
        distance = {id: self._distance(task, id) for id in self._loads}
        while len(self.found[task]) < copies:
            self._add(task, self._best(task, distance))

    def spread(self, tasks: list[TaskId]) -> bool:
        """Exchange copies for copies with fewer equal tags. Returns True if any was exchanged."""
        if len(self._equal) == 1:
            return False
        improved = False
        for task in tasks:
            for old in list(self.found[task]):
                alike = self._alike(task, without=old)
                now = alike[self._places[old]]
                taken = self._copies(task)
                if any(alike[self._places[id]] < now and id not in taken for id in self._loads):
                    self._remove(task, old)
                    distance = {id: self._distance(task, id) for id in self._loads}
                    self._add(task, self._best(task, distance))
                    improved = True
        return improved

    def balance(self) -> bool:
        """Move copies from processes with more than their share to processes with less. Returns True if any was moved.
        """
        under = [id for id, load in self._loads.items() if load < self._shares[id]]
        over = {id for id, load in self._loads.items() if load > self._shares[id]}
        if not under or not over:
            return False
        moves = sorted(
            (self._distance(task, new), task, old, new)
            for task, ids in self.found.items()
            for old in ids
            if old in over
            for new in under
            if new not in ids and new != self._target[task] and self._no_worse(task, old, new)
        )
        improved = False
        for _, task, old, new in moves:
            room = self._loads[old] > self._shares[old] and self._loads[new] < self._shares[new]
            ids = self.found[task]
            if room and old in ids and new not in ids and self._no_worse(task, old, new):
                self._remove(task, old)
                self._add(task, new)
                improved = True
        return improved

    def _best(self, task: TaskId, distance: Mapping[str, tuple[int, int, int]]) -> str:
        alike, loads, taken = self._alike(task), self._loads, self._copies(task)
        return min(
            (
                alike[self._places[id]],
                loads[id] >= self._shares[id],
                distance[id],
                loads[id] / self._processes.capacities[id],
                id,
            )
            for id in loads
            if id not in taken
        )[-1]

    def _copies(self, task: TaskId) -> list[str]:
        return [self._target[task], *self.found[task]]

    def _alike(self, task: TaskId, without: str | None = None) -> dict[tuple[str | None, ...], int]:
        """Return, by place, the number of tags that a new copy in this place would share with the task's other copies.
        """
        used = [self._places[id] for id in self._copies(task) if id != without]
        return {place: sum(equal[other] for other in used) for place, equal in self._equal.items()}

    def _no_worse(self, task: TaskId, old: str, new: str) -> bool:
        if self._places[old] == self._places[new]:
            return True
        alike = self._alike(task, without=old)
        return alike[self._places[new]] <= alike[self._places[old]]

    def _distance(self, task: TaskId, process: str) -> tuple[int, int, int]:
        """Return how far a process is from being the task's standby, as a sort key. The nearest processes have an open
        standby, then comes the one that runs the task now. All other processes are ordered by the amount that they
        would have to restore."""
        if self._processes.is_open(task, process):
            return (0, 0, 0)
        if self._processes.home.get(task) == process:
            return (1, 0, 0)
        return (2, *self._processes.lag(task, process))

    def _add(self, task: TaskId, id: str) -> None:
        self.found[task].append(id)
        self._loads[id] += 1

    def _remove(self, task: TaskId, id: str) -> None:
        self.found[task].remove(id)
        self._loads[id] -= 1


def equal_tags(one: tuple[str | None, ...], other: tuple[str | None, ...]) -> int:
    """Return the number of equal tags of two places. The last one is the command: two processes without workers don't
    share it."""
    return sum(a == b for a, b in zip(one, other, strict=True)) - (one[-1] is other[-1] is None)
