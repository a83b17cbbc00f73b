"""Assignors that are wrong.

*Guarantees*: none.
*Assumes*: one thread of a process leads the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from milestones.assignment import Placement, Rules, Subscription, TaskPlan

_ever: defaultdict[str, set[str]] = defaultdict(set)


def remembering(members: Mapping[str, Subscription], plan: TaskPlan, rules: Rules) -> Placement:
    """Splits the tasks over all members that the processes of the group ever had."""
    for name, member in members.items():
        _ever[member.process_id].add(name)
    names = sorted(name for process in {member.process_id for member in members.values()} for name in _ever[process])
    tasks = sorted(plan.tasks)
    return Placement(active={name: set(tasks[at :: len(names)]) for at, name in enumerate(names)})
