"""Who runs which task: a pure function that the group's leader calls at each rebalance.

*Guarantees*
- No task is given to two members. Every task is given to a member, or, when another live member still owns it,
  withheld until that one has released it (`followup`): a task moves in two steps.
- Balanced: over all tasks, over the stateful, over the stateless ones and within each sub-topology the loads of two
  members differ by at most one task per unit of capacity, so instances with more threads get more.
- Sticky: with the same members and tasks the answer repeats itself; the third round at the latest changes nothing.
- Members whose topology makes other tasks than the leader's get an error instead of tasks.

*How*: capacity is cut into units of one thread. Sub-topology by sub-topology (the stateful first) each unit gets the
same whole number of tasks, and the remainder goes to the units that have got the fewest remainders yet, among equals
to those that own more already. These quotas fixed, members keep what they own within them, and the rest is dealt
to those with room, first to whom already has its state.

*Assumes*: a member claims as active only what it owns now, and releases before it joins without it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milestones.common.assignment.model import Assignment, Subscription, refused
from milestones.common.assignment.plan import TaskPlan
from milestones.common.errors import MembershipError
from milestones.common.records import TaskId

Members = Mapping[str, Subscription]
Quotas = dict[tuple[int, str], int]
"""How many tasks of a sub-topology a member gets."""

NEVER = 1 << 62
"""The lag of who has no state at all."""


@dataclass
class _Unit:
    """One thread's worth of a member. `total` and `kind`: remainders got, of all and of stateful or stateless ones."""

    member: str
    turn: float
    total: int = 0
    kind: int = 0


def assign(members: Members, plan: TaskPlan) -> dict[str, Assignment]:
    """An assignment for each member; members and tasks in, nothing else. See the module's guarantees.

    `plan` is that of the leader, who may be the newcomer with another topology: then `MembershipError`, it has to
    leave, and the others go on under a leader of their own.
    """
    if plan.error is not None:
        return {name: refused(plan.error, member) for name, member in members.items()}
    fitting = {name: member for name, member in members.items() if member.fingerprint == plan.fingerprint}
    if len(fitting) < len(members):
        return _assign_divided(members, fitting, plan)
    return _assign_fitting(members, plan)


def _assign_divided(members: Members, fitting: Members, plan: TaskPlan) -> dict[str, Assignment]:
    """Some members run another topology: those that own tasks go on, the newcomers are refused."""
    running: dict[str, int] = defaultdict(int)
    for member in members.values():
        running[member.fingerprint] += len(member.active)
    # Equal numbers, all nothing at the very start: the leader's own topology counts.
    winner = max(running, key=lambda print_: (running[print_], print_ == plan.fingerprint, print_))
    reason = (
        "this instance's topology makes other tasks than that of the running instances of the application (its "
        "sub-topologies, source topics or stores differ): stop those first, or use another application_id"
    )
    if winner != plan.fingerprint:
        raise MembershipError(reason)
    result = _assign_fitting(fitting, plan)
    return {name: result.get(name) or refused(reason, member) for name, member in members.items()}


def _assign_fitting(members: Members, plan: TaskPlan) -> dict[str, Assignment]:
    owners = _owners(members, plan)
    classes = _classes(plan)
    quotas = _quotas(members, classes, owners, plan)
    targets = _targets(members, classes, owners, quotas)
    active: dict[str, set[TaskId]] = {name: set() for name in members}
    followup = False
    for task, target in targets.items():
        if owners.get(task, target) == target:
            active[target].add(task)
        else:
            followup = True
    # A task of an earlier plan that somebody still runs has to be released like one that moves.
    followup = followup or any(member.active - plan.tasks.keys() for member in members.values())
    return {
        name: Assignment(
            active=frozenset(active[name]),
            partitions={task: plan.tasks[task] for task in sorted(active[name])},
            followup=followup,
            profile=member.profile,
        )
        for name, member in members.items()
    }


def _owners(members: Members, plan: TaskPlan) -> dict[TaskId, str]:
    """The live owner of each task. Of two that claim one, the later generation is right, the other will lose it."""
    owners: dict[TaskId, str] = {}
    for name in sorted(members, key=lambda name: (members[name].generation, name)):
        owners.update((task, name) for task in members[name].active if task in plan.tasks)
    return owners


def _classes(plan: TaskPlan) -> list[list[TaskId]]:
    """The tasks by sub-topology, the stateful ones first."""
    grouped: dict[tuple[bool, int], list[TaskId]] = defaultdict(list)
    for task in sorted(plan.tasks):
        grouped[task not in plan.stateful, task.subtopology].append(task)
    return [grouped[key] for key in sorted(grouped)]


def _quotas(
    members: Members, classes: Sequence[Sequence[TaskId]], owners: Mapping[TaskId, str], plan: TaskPlan
) -> Quotas:
    """Deal the numbers, not yet the tasks."""
    units = _units(members)
    quotas: Quotas = {}
    stateful = True
    for tasks in classes:
        if stateful and tasks[0] not in plan.stateful:
            stateful = False
            for unit in units:
                unit.kind = 0
        each, rest = divmod(len(tasks), len(units))
        spare: dict[str, int] = defaultdict(int)
        for task in tasks:
            if task in owners:
                spare[owners[task]] += 1
        for name, member in members.items():
            quotas[tasks[0].subtopology, name] = each * member.capacity
            spare[name] -= each * member.capacity
        for unit in _choose(units, rest, spare):
            unit.total += 1
            unit.kind += 1
            quotas[tasks[0].subtopology, unit.member] += 1
    return quotas


def _choose(units: list[_Unit], rest: int, spare: dict[str, int]) -> list[_Unit]:
    """The units that get one task more: those with the fewest so far; among equals, owners (`spare` > 0) first."""
    ranked: list[tuple[int, int, bool, float, str, _Unit]] = []
    for unit in sorted(units, key=lambda unit: (unit.total, unit.kind, unit.turn, unit.member)):
        wanted = spare[unit.member] > 0
        spare[unit.member] -= 1
        ranked.append((unit.total, unit.kind, not wanted, unit.turn, unit.member, unit))
    ranked.sort(key=lambda entry: entry[:5])
    return [entry[5] for entry in ranked[:rest]]


def _units(members: Members) -> list[_Unit]:
    """All units, in a turn that alternates between instances in proportion to their capacity."""
    by_process: dict[str, list[str]] = defaultdict(list)
    rounds = max((member.capacity for member in members.values()), default=0)
    for lap in range(rounds):
        for name in sorted(members):
            if lap < members[name].capacity:
                by_process[members[name].process_id].append(name)
    return [
        _Unit(name, (index + 0.5) / len(names)) for names in by_process.values() for index, name in enumerate(names)
    ]


def _targets(
    members: Members, classes: Sequence[Sequence[TaskId]], owners: Mapping[TaskId, str], quotas: Quotas
) -> dict[TaskId, str]:
    """A member for each task: its owner while that has room, else the one with room that has the freshest state."""
    targets: dict[TaskId, str] = {}
    for tasks in classes:
        room = {name: quotas[tasks[0].subtopology, name] for name in members}
        homeless: list[TaskId] = []
        for task in tasks:
            owner = owners.get(task)
            if owner is not None and room[owner] > 0:
                room[owner] -= 1
                targets[task] = owner
            else:
                homeless.append(task)
        for task in homeless:
            free = [name for name, left in room.items() if left > 0]
            best = min(free, key=lambda name: (members[name].lags.get(task, NEVER), -room[name], name))
            room[best] -= 1
            targets[task] = best
    return targets
