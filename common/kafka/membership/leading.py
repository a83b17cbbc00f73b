"""The leader's work between JoinGroup and SyncGroup, and the check whether an assignment calls for another rebalance.

*Guarantees*: every member of the generation gets an assignment: the leader's, an empty one, or the reason why not.
*Assumes*: a `Leader` whose steps return in time.
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
    """The assignments by member id, in the leader's steps. A member that can't be understood gets the reason, and the
    others share all tasks."""
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
    """The input topics of the assignment's active tasks, also those that patterns match."""
    return frozenset(at.topic for task in assignment.active for at in assignment.partitions.get(task, ()))


def outdated(assignment: Assignment, subscription: Subscription, *, returns: bool) -> str | None:
    """Why this assignment calls for another rebalance; None when it doesn't. `returns`: the assignment went to a static
    member that had no generation.

    A restarted static member gets its old assignment without a rebalance, whatever its new subscription says. A topic
    that no member's subscription names doesn't belong to the group for the coordinator, which lets the topic's
    committed offsets expire `offsets.retention.minutes` after their commit, under a running group (KIP-211).
    """
    if assignment.profile is not None and assignment.profile != profile_of(subscription):
        return "this static member has another configuration than before"
    if unnamed := topics_of(assignment) - set(subscription.topics):
        return f"the subscription doesn't name {', '.join(sorted(unnamed))} yet"
    if returns and assignment.followup:
        # The member would have asked for the follow-up after its release, had it lived.
        return "this static member has returned, and others may wait for what it had"
    return None
