"""The plain assignor: it balances tasks and avoids moves, but ignores lags.

*Guarantees*: the balance of `balance.py`, first over processes, then over the members of each process. Tasks move at
once, and their new owner restores them before it processes. Of the possible new processes, a task gets the one that has
most of its state. Standbys are placed as with high availability. There are no warm-ups.
*Assumes*: state is small, or restoring it costs less than warming up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from milestones.common.assignment.balance import QuotaDealer, distribute, groups_of
from milestones.common.assignment.group import Processes
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Members, Placement, Rules, Tasks
from milestones.common.assignment.standbys import wanted_standbys
from milestones.common.records import TaskId


def sticky(members: Members, plan: TaskPlan, rules: Rules) -> Placement:
    """Return the placement by the rules of this module."""
    processes = Processes(members, plan, rules.acceptable_recovery_lag)
    dealer = QuotaDealer(processes.capacities)
    target = balanced(processes, plan, dealer)
    standbys = wanted_standbys(processes, plan, rules, target, dealer)
    return over_members(members, plan, processes, target, standbys, {})


def balanced(processes: Processes, plan: TaskPlan, dealer: QuotaDealer) -> dict[TaskId, str]:
    """Return the process that should run each task after all tasks have moved."""
    stateful = plan.stateful
    owner = processes.next_home | processes.home
    held = dict(owner)
    for task in stateful - held.keys():
        ranked = [(processes.lag(task, id), not processes.is_open(task, id), id) for id in processes.all]
        best = min(ranked)
        if best[:2] != max(ranked)[:2]:
            held[task] = best[2]
    rank = _ranks(processes)

    def distance(task: TaskId, process: str) -> int:
        if task not in stateful or processes.caught_up(task, process):
            return 0
        return 1 if processes.is_open(task, process) else 2

    def preference(task: TaskId, process: str) -> tuple[object, ...]:
        if task not in stateful:
            return ()
        return (processes.lag(task, process), not processes.is_open(task, process))

    target: dict[TaskId, str] = {}
    groups = groups_of(plan.tasks, plan)
    for group, shares in zip(groups, dealer.deal_groups(groups, held), strict=True):
        target |= distribute(group.tasks, shares, owner, distance, preference, rank)
    return target


def _ranks(processes: Processes) -> dict[TaskId, int]:
    """Return the number of each task among the tasks of its member and sub-topology. By this number, a process gives
    away tasks of all its members in turn."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    ranks: dict[TaskId, int] = {}
    for task in sorted(processes.owner):
        key = (processes.owner[task], task.subtopology)
        ranks[task] = counts[key]
        counts[key] += 1
    return ranks


def over_members(
    members: Members,
    plan: TaskPlan,
    processes: Processes,
    active: Mapping[TaskId, str],
    standbys: Mapping[TaskId, Sequence[str]],
    warmups: Mapping[TaskId, Sequence[str]],
) -> Placement:
    """Distribute the tasks of each process over its members. A task stays with its owner, or goes to the member that
    has a standby of the task."""
    here: dict[str, list[TaskId]] = defaultdict(list)
    standby_here: dict[str, list[TaskId]] = defaultdict(list)
    warmup_here: dict[str, list[TaskId]] = defaultdict(list)
    for task, id in active.items():
        here[id].append(task)
    for where, copies in ((standby_here, standbys), (warmup_here, warmups)):
        for task, ids in copies.items():
            for id in ids:
                where[id].append(task)
    actives: dict[str, set[TaskId]] = {name: set() for name in members}
    standby: dict[str, set[TaskId]] = {name: set() for name in members}
    warmup: dict[str, set[TaskId]] = {name: set() for name in members}
    for id, process in processes.all.items():
        dealer = QuotaDealer({name: members[name].capacity for name in process.members})
        for task, name in _actives_of(id, here[id], members, plan, processes, dealer).items():
            actives[name].add(task)
        copies_here = sorted(standby_here[id] + warmup_here[id])
        warming = set(warmup_here[id])
        for task, name in _copies_of(id, copies_here, members, processes, dealer).items():
            (warmup if task in warming else standby)[name].add(task)
    return Placement(_frozen(actives), _frozen(standby), _frozen(warmup))


def _actives_of(
    id: str, tasks: Sequence[TaskId], members: Members, plan: TaskPlan, processes: Processes, dealer: QuotaDealer
) -> dict[TaskId, str]:
    owner = {task: name for task in tasks if (name := _holder(task, id, members, processes))}
    running = {task: name for task, name in owner.items() if processes.owner.get(task) == name}
    groups = groups_of(tasks, plan)
    result: dict[TaskId, str] = {}
    for group, shares in zip(groups, dealer.deal_groups(groups, owner), strict=True):
        result |= distribute(
            group.tasks, shares, running, lambda *_: 0, lambda task, name: (owner.get(task) != name,), {}
        )
    return result


def _copies_of(
    id: str, tasks: Sequence[TaskId], members: Members, processes: Processes, dealer: QuotaDealer
) -> dict[TaskId, str]:
    owner = {task: name for task in tasks if (name := _holder(task, id, members, processes))}
    return distribute(tasks, dealer.deal(len(tasks), Counter(owner.values())), owner, lambda *_: 0, lambda *_: (), {})


def _holder(task: TaskId, id: str, members: Members, processes: Processes) -> str | None:
    """Return the member of this process that runs the task, has been promised it, or has a standby of it. None if there
    is none."""
    running = processes.owner.get(task) or processes.heir.get(task)
    if running is not None and members[running].process_id == id:
        return running
    return processes.opened.get(task, {}).get(id)


def _frozen(tasks: Mapping[str, set[TaskId]]) -> Tasks:
    return {name: frozenset(found) for name, found in tasks.items()}
