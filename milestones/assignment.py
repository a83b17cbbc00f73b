"""The types that your own task assignor (`task_assignor`, KIP-924) gets and returns.

    from milestones.assignment import Members, Placement, Rules, TaskPlan
"""

from __future__ import annotations

from milestones.common.assignment.model import Subscription
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Assignor, Members, Placement, Rules, Tasks
from milestones.common.public import publish

__all__ = ["Assignor", "Members", "Placement", "Rules", "Subscription", "TaskPlan", "Tasks"]

publish(__name__)
