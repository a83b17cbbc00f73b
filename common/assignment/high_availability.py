"""The default assignor: a stateful task runs where its state is, and moves when its new home has caught up (KIP-441).

*Guarantees*: those of docs/assignment.md.

*How*
1. `balanced` chooses a target process for each task, as if moving state cost nothing.
2. If the target isn't caught up, the task stays on, or moves to, a process that is caught up. If there is none, the
   process with the least lag gets the task. A target that can't warm up (a run on Spark) gets its tasks immediately.
3. Standbys follow the same rule: a standby that is caught up stays until its replacement is caught up.
4. Tasks that wait in 2 and 3 warm up on their target. The rules limit the number of warm-ups at a time. Tasks that are
   open on the target already come first.

*Assumes*: a member rejoins when one of its warm-ups has caught up.
*Why this way*: a task that moves before its state is there processes nothing until the state is restored. So
availability comes before balance: balance is reached in several rebalances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from milestones.common.assignment.balance import QuotaDealer
from milestones.common.assignment.group import Processes
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Members, Placement, Rules
from milestones.common.assignment.standbys import wanted_standbys
from milestones.common.assignment.sticky import balanced, over_members
from milestones.common.records import TaskId


class _Wish(NamedTuple):
    """A task that should be on a process that isn't caught up. Wishes are ordered as their warm-ups will start."""

    closed: bool
    for_standby: bool
    lag: tuple[int, int]
    task: TaskId
    process: str


def high_availability(members: Members, plan: TaskPlan, rules: Rules) -> Placement:
    """Return the placement by the rules of this module."""
    processes = Processes(members, plan, rules.acceptable_recovery_lag)
    dealer = QuotaDealer(processes.capacities)
    target = balanced(processes, plan, dealer)
    active = _where_caught_up(processes, plan, target)
    wanted = wanted_standbys(processes, plan, rules, target, dealer)
    standbys: dict[TaskId, list[str]] = {}
    wishes: list[_Wish] = []
    for task, ids in wanted.items():
        standbys[task], later = _kept(processes, task, active[task], target[task], ids)
        wishes += (_wish(processes, task, id, for_standby=True) for id in later)
    warmups: dict[TaskId, list[str]] = defaultdict(list)
    for task in plan.stateful:
        goal = target[task]
        if goal == active[task]:
            continue
        if goal in standbys.get(task, ()):
            # It doesn't count as a warm-up, but must ask for a rebalance like one when it has caught up.
            standbys[task].remove(goal)
            warmups[task].append(goal)
        else:
            wishes.append(_wish(processes, task, goal, for_standby=False))
    for wish in sorted(wishes)[: rules.max_warmup_replicas]:
        warmups[wish.task].append(wish.process)
    return over_members(members, plan, processes, active, standbys, warmups)


def _where_caught_up(processes: Processes, plan: TaskPlan, target: Mapping[TaskId, str]) -> dict[TaskId, str]:
    """Return the process that runs each task until the warm-ups have caught up."""
    active = dict(target)
    choices: dict[TaskId, list[str]] = {}
    for task in sorted(plan.stateful):
        goal, home = target[task], processes.home.get(task)
        if goal not in processes.keepers:
            continue  # the process can't warm up: it gets the task immediately, or never
        if goal == home or processes.caught_up(task, goal):
            lagging = goal == home and not processes.caught_up(task, goal)
            others = [id for id in processes.all if processes.caught_up(task, id)] if lagging else []
        elif home is not None and processes.caught_up(task, home):
            others = [home]
        else:
            others = [id for id in processes.all if processes.caught_up(task, id)]
            others = others or _least_lag(processes, task, goal, home)
        if len(others) == 1:
            active[task] = others[0]
        elif others and goal not in others:
            choices[task] = others
    loads: dict[str, int] = defaultdict(int)
    for task, id in active.items():
        loads[id] += task not in choices
    for task, ids in choices.items():
        best = min(
            ids,
            key=lambda id: (not processes.is_open(task, id), loads[id] / processes.capacities[id], id),
        )
        loads[best] += 1
        active[task] = best
    return active


def _least_lag(processes: Processes, task: TaskId, goal: str, home: str | None) -> list[str]:
    """Return the processes that may run a task when no process is caught up: the goal, unless a process with a smaller
    lag may run it."""
    if home is not None:
        ahead = processes.lag(task, goal)
        # An unknown lag is no reason to move.
        return [goal] if ahead[0] == 0 and ahead <= processes.lag(task, home) else [home]
    lags = {id: processes.lag(task, id) for id in processes.all}
    least = min(lags.values())
    return [goal] if lags[goal] == least else [id for id, lag in lags.items() if lag == least]


def _kept(
    processes: Processes, task: TaskId, active: str, target: str, wanted: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the task's standbys until the warm-ups have caught up, and those processes of `wanted` that must warm up
    first."""
    ready = [id for id in wanted if id != active and processes.caught_up(task, id)]
    waiting = [id for id in wanted if id not in ready]
    spare = [
        id for id in processes.opened.get(task, ()) if id not in (active, *wanted) and processes.caught_up(task, id)
    ]
    later: list[str] = []
    for id in waiting:
        if spare:
            ready.append(spare.pop(0))
            later += [id] * (id != active)
        elif id != active:
            ready.append(id)
        else:
            # The present owner will become the standby of the new one. Until then, the new owner is the standby.
            ready.append(target)
    return ready, later


def _wish(processes: Processes, task: TaskId, id: str, *, for_standby: bool) -> _Wish:
    return _Wish(not processes.is_open(task, id), for_standby, processes.lag(task, id), task, id)
