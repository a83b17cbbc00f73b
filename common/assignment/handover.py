"""`assign` asks an assignor for a placement, checks it, and makes the members' assignments of it.

*Guarantees*
- No task is given to two members. If a live member still owns a task that should move, the task is withheld until that
  member has released it. `followup` is True then. So a task moves in two steps. Between the steps, the new owner keeps
  the task's open state as a standby.
- If a placement breaks a rule, nothing is assigned. The error names the assignor, the rule and the task.
- Members whose topology makes other tasks than the leader's get an error instead of tasks.

*Assumes*: a member names as active only the tasks that it owns now. A member releases a task before it joins without
the task.
*Why this way*: an assignor says where tasks should be, as if all could move together. The two-step move is added here,
so that no assignor, not even a user's, can give a task to two members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from milestones.common.assignment.group import owners
from milestones.common.assignment.high_availability import high_availability
from milestones.common.assignment.model import Assignment, refused
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Assignor, Members, Placement, Rules
from milestones.common.assignment.sticky import sticky
from milestones.common.errors import ConfigError, MembershipError
from milestones.common.last_words import typed
from milestones.common.public import path_of
from milestones.common.records import TaskId

ASSIGNORS: Mapping[str, Assignor] = {"high_availability": high_availability, "sticky": sticky}
"""The built-in assignors, by their name in the configuration."""


def assign(
    members: Members,
    plan: TaskPlan,
    rules: Rules | None = None,
    assignor: Assignor | str = "high_availability",
) -> dict[str, Assignment]:
    """Return an assignment for each member. See the module's guarantees.

    `plan` is the plan of the leader. If the leader is new and has another topology than the running members, a
    `MembershipError` is raised: the leader must leave, and the other members elect a new one. Raises `ConfigError` for
    an assignor that fails or breaks a rule.
    """
    if plan.error is not None:
        return {name: refused(plan.error, member) for name, member in members.items()}
    fitting = {name: member for name, member in members.items() if member.fingerprint == plan.fingerprint}
    reason = ""
    if len(fitting) < len(members):
        reason = _divided(members, plan)
    placement = _placed(fitting, plan, rules or Rules(), assignor)
    result = hand_over(fitting, plan, placement)
    return {name: result.get(name) or refused(reason, member) for name, member in members.items()}


def _divided(members: Members, plan: TaskPlan) -> str:
    """Return the reason for refusing members with another topology. The topology whose members own most tasks stays."""
    running: dict[str, int] = defaultdict(int)
    for member in members.values():
        running[member.fingerprint] += len(member.active)
    # With equal numbers (all are 0 at the very start), the leader's own topology counts.
    winner = max(running, key=lambda print_: (running[print_], print_ == plan.fingerprint, print_))
    reason = (
        "this instance's topology makes other tasks than that of the running instances of the application (its "
        "sub-topologies, source topics or stores differ): stop those first, or use another application_id"
    )
    if winner != plan.fingerprint:
        raise MembershipError(reason)
    return reason


def _placed(members: Members, plan: TaskPlan, rules: Rules, assignor: Assignor | str) -> Placement:
    name = assignor if isinstance(assignor, str) else path_of(assignor)
    function = ASSIGNORS[assignor] if isinstance(assignor, str) else assignor
    try:
        placement = function(members, plan, rules)
    except BaseException as error:  # whatever the user's assignor raises
        raise ConfigError("task_assignor", name, f"raised {typed(error)}") from error
    problem = problem_of(placement, members, plan)
    if problem is not None:
        raise ConfigError("task_assignor", name, f"{problem}; nothing was assigned: correct the assignor")
    return placement


def problem_of(placement: object, members: Members, plan: TaskPlan) -> str | None:
    """Return the rule that a placement breaks, in words for the assignor's author. None if the placement breaks no
    rule."""
    if not isinstance(placement, Placement):
        return f"returned {type(placement).__name__}, not a Placement"
    runs: dict[TaskId, str] = {}
    copies: dict[tuple[TaskId, str], str] = {}
    for kind in ("active", "standby", "warmup"):
        for name, tasks in getattr(placement, kind).items():
            if name not in members:
                return f"gave {kind} tasks to {name!r}, which is no member of the group now ({', '.join(members)} are)"
            for task in tasks:
                if task not in plan.tasks:
                    return f"gave {task} to member {name}, which is no task of this topology"
                if kind == "active" and task in runs:
                    return f"made {task} active on two members, {runs[task]} and {name}"
                if kind != "active" and task not in plan.stateful:
                    return f"made {task} a {kind} on member {name}, but the task has no changelog that it could follow"
                process = members[name].process_id
                if (task, process) in copies:
                    both = f"members {copies[task, process]} and {name}"
                    return f"put {task} twice on the process {process} ({both}), whose members share their state"
                copies[task, process] = name
                if kind == "active":
                    runs[task] = name
    lacking = sorted(plan.tasks.keys() - runs.keys())
    return f"left {', '.join(map(str, lacking[:10]))} without an active member" if lacking else None


def hand_over(members: Members, plan: TaskPlan, placement: Placement) -> dict[str, Assignment]:
    """Return the assignments for the part of a placement that can be done now. `members` are those that the placement
    was made for."""
    owner = owners(members, plan.tasks)
    active: dict[str, set[TaskId]] = {name: set() for name in members}
    promised: dict[str, set[TaskId]] = {name: set() for name in members}
    standby = {
        name: set(placement.standby.get(name, ())) if member.keeps_copies else set() for name, member in members.items()
    }
    opened = {(member.process_id, task): name for name, member in members.items() for task in member.standby}
    # A member may still run a task of an earlier plan. It must release this task like one that moves.
    followup = any(member.active - plan.tasks.keys() for member in members.values())
    for name, tasks in placement.active.items():
        for task in tasks:
            if owner.get(task, name) == name:
                active[name].add(task)
                continue
            followup = True
            promised[name].add(task)
            keeper = opened.get((members[name].process_id, task))
            if keeper is not None:
                standby[keeper].add(task)
    return {
        name: Assignment(
            active=frozenset(active[name]),
            standby=frozenset(standby[name]),
            warmup=frozenset(placement.warmup.get(name, ())) if member.keeps_copies else frozenset(),
            partitions={task: plan.tasks[task] for task in sorted(active[name])},
            followup=followup,
            profile=member.profile,
            promised=frozenset(promised[name]),
        )
        for name, member in members.items()
    }
