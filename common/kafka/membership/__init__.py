"""Group membership: a small client of Kafka's classic group protocol (KIP-62, KIP-345, KIP-429).

*Guarantees*: see `member.py`.
*Assumes*: a broker of Apache Kafka 3.2 or newer.
"""

from __future__ import annotations

from milestones.common.kafka.membership.delegated import BorrowedMembership, LentMembership
from milestones.common.kafka.membership.events import (
    Assigned,
    Committed,
    Failed,
    JoinNeeded,
    Leader,
    Lost,
    MemberEvent,
    Offsets,
)
from milestones.common.kafka.membership.member import GroupMember
from milestones.common.kafka.membership.metadata import group_metadata, verify_group_metadata_format
from milestones.common.kafka.membership.reactions import CommitRetriableError, StaleGenerationError
from milestones.common.kafka.membership.settings import MemberSettings

__all__ = [
    "Assigned",
    "BorrowedMembership",
    "CommitRetriableError",
    "Committed",
    "Failed",
    "GroupMember",
    "JoinNeeded",
    "Leader",
    "LentMembership",
    "Lost",
    "MemberEvent",
    "MemberSettings",
    "Offsets",
    "StaleGenerationError",
    "group_metadata",
    "verify_group_metadata_format",
]
