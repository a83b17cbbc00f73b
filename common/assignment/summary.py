"""Describes a rebalance in one record for the log: its reasons, the members, the moves, the lags.

*Guarantees*: all values can be written as JSON. A list ends after `LIMIT` entries and says how many are left out, so
that the line for 500 tasks on 50 members stays below 20 KB.
*Assumes*: `members` contain the lags that the leader has computed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from milestones.common.assignment.group import Processes
from milestones.common.assignment.model import Assignment, AssignmentOrigin, Subscription
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Members, Rules
from milestones.common.records import TaskId

LIMIT = 20
"""The largest number of entries in a list of tasks, in order of their ids."""
NAMES_LIMIT = 3
"""The largest number of members that are named with one reason."""
MEMBERS_LIMIT = 50
REASON_LIMIT = 255
"""The largest number of characters of a reason."""

_UUID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""The suffix that the broker appends to a client id (or a static id) to make a member id."""


def short_name(id: str) -> str:
    """Return the name in a member id or client id, without the suffixes of the broker and of the kind of client. For a
    stream thread this is the name in its logs and metrics."""
    return _UUID.sub("", id).removesuffix("-consumer")


def names_of(member_ids: Collection[str]) -> dict[str, str]:
    """Return short names by member id. Two members with the same short name keep their whole ids."""
    short = {id: short_name(id) for id in member_ids}
    taken = list(short.values())
    return {id: name if taken.count(name) == 1 else id for id, name in short.items()}


def summary(
    members: Members,
    given: Mapping[str, Assignment],
    plan: TaskPlan,
    rules: Rules,
    group: str,
    origin: AssignmentOrigin,
) -> dict[str, Any]:
    """Describe one rebalance. `members`: the members as the assignor saw them. `given`: their assignments."""
    names, seen = names_of(members), Processes(members, plan, rules.acceptable_recovery_lag)
    return {
        "group": group,
        "generation": origin.generation,
        "leader": names.get(origin.leader, origin.leader),
        "why": _reasons(members, names),
        "members": _some([_member(names[id], members[id], given[id]) for id in sorted(members)], MEMBERS_LIMIT),
        "tasks": {
            "all": len(plan.tasks),
            "stateful": len(plan.stateful),
            **{kind: sum(len(getattr(a, kind)) for a in given.values()) for kind in ("active", "standby", "warmup")},
            "withheld": len({task for a in given.values() for task in a.promised}),
        },
        "moves": _some(_moves(members, given, seen, names)),
        "warmups": _some(_copies("warmup", members, given, seen, names, plan)),
        "lagging": _some([
            {**copy, "as": kind}
            for kind in ("active", "standby")
            for copy in _copies(kind, members, given, seen, names, plan)
            if copy["lag"] != 0
        ]),
        "followup": any(assignment.followup for assignment in given.values()),
        **_refusals(given, names),
    }  # fmt: skip


def _reasons(members: Members, names: Mapping[str, str]) -> dict[str, list[Any]]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for id in sorted(members):
        grouped[members[id].reason[:REASON_LIMIT] or "not said"].append(names[id])
    rarest_first = sorted(grouped.items(), key=lambda item: (len(item[1]), item[0]))
    return {reason: _some(who, NAMES_LIMIT) for reason, who in rarest_first[:LIMIT]}


def _member(name: str, member: Subscription, assignment: Assignment) -> dict[str, Any]:
    return {
        "member": name,
        "process": member.process_id,
        "stage": member.stage,
        "capacity": member.capacity,
        "active": len(assignment.active),
        "standby": len(assignment.standby),
        "warmup": len(assignment.warmup),
    }


def _moves(
    members: Members, given: Mapping[str, Assignment], seen: Processes, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the tasks whose owners change. `withheld`: the old owner must release the task first. `released`: the task
    goes to the member to which it was promised. `unowned`: the task had no owner."""
    moves: dict[TaskId, dict[str, Any]] = {}
    for id, assignment in given.items():
        for task in assignment.promised:
            moves[task] = {"from": names.get(seen.owner.get(task, "")), "to": names[id], "is": "withheld"}
        for task in assignment.active - members[id].active:
            kind = "released" if task in seen.heir else "unowned"
            moves[task] = {"from": None, "to": names[id], "is": kind}
    return [{"task": str(task), **moves[task]} for task in sorted(moves)]


def _copies(
    kind: str,
    members: Members,
    given: Mapping[str, Assignment],
    seen: Processes,
    names: Mapping[str, str],
    plan: TaskPlan,
) -> list[dict[str, Any]]:
    """Return the tasks assigned as `kind`, with their lag. The lag is 0 if the copy has caught up, and None if it isn't
    known."""
    found = sorted((task, id) for id, assignment in given.items() for task in getattr(assignment, kind))
    return [
        {"task": str(task), "on": names[id], "lag": lag if known == 0 else None}
        for task, id in found
        if task in plan.stateful
        for known, lag in [seen.lag(task, members[id].process_id)]
    ]


def _refusals(given: Mapping[str, Assignment], names: Mapping[str, str]) -> dict[str, Any]:
    refused = [names[id] for id, assignment in sorted(given.items()) if assignment.error is not None]
    return {"refused": _some(refused)} if refused else {}


def _some(entries: Iterable[Any], limit: int = LIMIT) -> list[Any]:
    """Return at most `limit` entries, and a last one that says how many were left out."""
    all_ = list(entries)
    return all_ if len(all_) <= limit else [*all_[:limit], f"and {len(all_) - limit} more"]
