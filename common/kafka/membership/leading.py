"""`lead`: the leader's work between JoinGroup and SyncGroup. `outdated`: checks if an assignment needs another
rebalance.

*Guarantees*: every member of the generation gets an assignment. It is empty if the leader has given the member nothing,
and contains an error if the member can't be understood.
*Assumes*: the steps of the `Leader` return in time.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from kio.schema.join_group.v9 import JoinGroupResponse

from milestones.common.assignment.model import (
    Assignment,
    AssignmentOrigin,
    Subscription,
    UserDataError,
    profile_of,
    refused,
)
from milestones.common.clock import SystemClock
from milestones.common.kafka.membership.events import Assigning, Leader
from milestones.common.kafka.membership.protocol import read_subscription

log: Final = logging.getLogger(__name__)


def lead(leader: Leader, group: str, answer: JoinGroupResponse) -> Assigning:
    """Take the leader's steps, and return the assignments by member id. If the leader can't read the metadata of a
    member, this member gets an error, and the other members get all tasks."""
    members: dict[str, Subscription] = {}
    result: dict[str, Assignment] = {}
    for member in answer.members:
        try:
            subscription = read_subscription(member.metadata)
            members[member.member_id] = replace(subscription, instance_id=member.group_instance_id)
        except UserDataError as error:
            log.warning("group %s: member %s is left out: %s", group, member.member_id, error)
            result[member.member_id] = refused(f"the group's leader can't understand this member: {error}")
    assigned = yield from leader.assign(
        members, AssignmentOrigin(answer.generation_id, answer.leader, SystemClock().wall_ms())
    )
    return result | {name: assigned.get(name, Assignment()) for name in members}


def topics_of(assignment: Assignment) -> frozenset[str]:
    """Returns the input topics of the assignment's active tasks, including topics that match a topic pattern."""
    return frozenset(at.topic for task in assignment.active for at in assignment.partitions.get(task, ()))


def outdated(assignment: Assignment, subscription: Subscription, *, returns: bool) -> str | None:
    """Returns the reason why this assignment needs another rebalance, or None. `returns`: True if this is a static
    member that was in no generation before.

    A restarted static member gets its old assignment without a rebalance, even if its new subscription differs. If no
    member's subscription names a topic, the coordinator deletes the topic's committed offsets
    `offsets.retention.minutes` after their commit, while the group is running (KIP-211).
    """
    if assignment.profile is not None and assignment.profile != profile_of(subscription):
        return "this static member has another configuration than before"
    if unnamed := topics_of(assignment) - set(subscription.topics):
        return f"the subscription doesn't name {', '.join(sorted(unnamed))} yet"
    if returns and assignment.followup:
        # Without its restart the member would have asked for this rebalance after it had released its tasks.
        return "this static member has returned, and others may wait for tasks that it had"
    return None
