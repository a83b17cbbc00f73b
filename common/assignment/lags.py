"""From positions to lags, and back to nothing when the changelogs' ends aren't known.

*Guarantees*: pure. A process that says nothing of a task lags by all of it, so that a task with little state may go
anywhere at once. A position beyond the end is of an older topic of that name: it counts for nothing.
*Assumes*: ends were asked after the members had joined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from milestones.common.assignment.model import Subscription
from milestones.common.assignment.rules import Members
from milestones.common.records import TaskId


def with_lags(members: Members, ends: Mapping[TaskId, int]) -> dict[str, Subscription]:
    """The members, with the lag of each process on each task of `ends` (the sum of its changelogs' ends, by task).

    A lag that a member knows by itself stands when it is the smaller one: it was right when the member joined, and the
    end may have moved on while the group waited for others.
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
