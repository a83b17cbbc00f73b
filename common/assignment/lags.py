"""Computes the lags of processes from their positions and the ends of the changelogs.

*Guarantees*: pure functions. If a process reports nothing about a task, its lag is the whole changelog. So a task with
little state may move to any process immediately. A position beyond the end belongs to an older topic of the same name,
and counts as nothing.
*Assumes*: the ends were read after the members had joined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from milestones.common.assignment.model import Subscription
from milestones.common.assignment.rules import Members
from milestones.common.records import TaskId


def with_lags(members: Members, ends: Mapping[TaskId, int]) -> dict[str, Subscription]:
    """Return the members with the lag of each process on each task of `ends` (by task, the sum of its changelogs'
    ends).

    If a member reports a lag itself, the smaller one of both counts. The reported lag was right when the member joined,
    and the end may have grown while the group waited for other members.
    """
    silent: dict[str, str] = {}
    reported: dict[str, set[TaskId]] = defaultdict(set)
    for name in sorted(members):
        member = members[name]
        silent.setdefault(member.process_id, name)
        reported[member.process_id] |= member.active | member.positions.keys() | member.lags.keys()
    result: dict[str, Subscription] = {}
    for name, member in members.items():
        lags = dict(member.lags)
        for task, position in member.positions.items():
            end = ends.get(task)
            if end is not None:
                lag = end - position if position <= end else end
                lags[task] = min(lag, lags.get(task, lag))
        if silent[member.process_id] == name:
            known = reported[member.process_id]
            lags.update((task, end) for task, end in ends.items() if task not in known)
        result[name] = replace(member, lags=lags)
    return result
