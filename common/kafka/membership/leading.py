"""What the elected member does between JoinGroup and SyncGroup.

*Guarantees*: every member of the generation gets an assignment: the leader's, an empty one, or the reason why not.
*Assumes*: a `Leader` that returns in time.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from kio.schema.join_group.v9 import JoinGroupResponse

from milestones.common.assignment.model import Assignment, Subscription, UserDataError, refused
from milestones.common.kafka.membership.events import Leader
from milestones.common.kafka.membership.protocol import read_subscription

log = logging.getLogger(__name__)


def lead(leader: Leader, group: str, answer: JoinGroupResponse) -> dict[str, Assignment]:
    """Assignments by member id. A member that can't be understood is told so; the others go on without it."""
    members: dict[str, Subscription] = {}
    result: dict[str, Assignment] = {}
    for member in answer.members:
        try:
            subscription = read_subscription(member.metadata)
            members[member.member_id] = replace(subscription, instance_id=member.group_instance_id)
        except UserDataError as error:
            log.warning("group %s: member %s is left out: %s", group, member.member_id, error)
            result[member.member_id] = refused(f"the group's leader can't understand this member: {error}")
    assigned = leader.assign(members)
    return result | {name: assigned.get(name, Assignment()) for name in members}
