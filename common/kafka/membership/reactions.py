"""Defines what a member does after each error code of the coordinator.

*Guarantees*: every code has a reaction. A code that isn't in the table is retried if Kafka calls it retriable, and ends
the member otherwise.
*Assumes*: brokers behave as in the classic group protocol of Kafka 3.2 and newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from kio.schema.errors import ErrorCode

from milestones.common.errors import MembershipError, MilestonesError, SecurityError, TaskMigratedError
from milestones.common.kafka.membership.settings import MemberSettings


class Reaction(Enum):
    RETRY = auto()
    """Repeat the request after a pause."""
    FIND = auto()
    """Look up the coordinator, then repeat the request."""
    REJOIN = auto()
    """A rebalance has begun. Ask the owner to join, or send JoinGroup once more if the member is already joining."""
    TAKE_ID = auto()
    """Join without delay, with the member id in the answer."""
    LOSE_GENERATION = auto()
    """The generation is over. All active tasks are lost. The member keeps its id."""
    LOSE_MEMBER = auto()
    """The group has removed the member. All active tasks and the member id are lost."""
    REFUSE = auto()
    """This commit or question can never succeed. The member stays in the group."""
    FAIL = auto()
    """End this member."""


class CommitRetriableError(MilestonesError):
    """The outcome of a commit is unknown, or the commit must wait. The caller repeats it. Users never see this
    error."""


class StaleGenerationError(TaskMigratedError):
    """A commit or a question failed because its generation is over. The tasks may belong to another member now."""


_ACL = "grant the user READ on the group, and READ on its source topics"
_LIMITS = "set it within the broker's group.min.session.timeout.ms and group.max.session.timeout.ms"

_PROTOCOL = (
    "the other members of this group speak other protocols: another program, such as a Java instance of the "
    "application, or a release too far from this one, uses the same application_id; stop it, set upgrade_from to what "
    "they speak, or go through a release in between. A Java instance that was stopped, or any that was killed, is in "
    "the group until its session.timeout.ms is over (45 s by default), unless it was closed with LEAVE_GROUP"
)
_FENCED = "another instance has joined with this static id: give each instance a group_instance_id of its own"
_BROKEN = (
    "the coordinator failed, its log says why; often the group's metadata has outgrown the message size of "
    "__consumer_offsets"
)

TABLE: dict[ErrorCode, tuple[Reaction, str]] = {
    ErrorCode.coordinator_load_in_progress: (Reaction.RETRY, "the coordinator loads the group"),
    ErrorCode.unknown_topic_or_partition: (Reaction.RETRY, "the broker doesn't know the topic, yet or any more"),
    ErrorCode.coordinator_not_available: (Reaction.FIND, "the coordinator isn't available"),
    ErrorCode.not_coordinator: (Reaction.FIND, "the coordinator has moved"),
    ErrorCode.request_timed_out: (Reaction.FIND, "the coordinator couldn't write in time"),
    ErrorCode.not_leader_or_follower: (Reaction.FIND, "the coordinator's partition has moved"),
    ErrorCode.rebalance_in_progress: (Reaction.REJOIN, "the group rebalances"),
    ErrorCode.member_id_required: (Reaction.TAKE_ID, "the coordinator gives out a member id"),
    ErrorCode.illegal_generation: (Reaction.LOSE_GENERATION, "the group is in another generation"),
    ErrorCode.unknown_member_id: (Reaction.LOSE_MEMBER, "the group has removed this member (session or poll timeout)"),
    ErrorCode.offset_metadata_too_large: (Reaction.REFUSE, "longer than the broker's offset.metadata.max.bytes"),
    ErrorCode.invalid_commit_offset_size: (Reaction.REFUSE, "more offsets than the broker stores in one batch"),
    ErrorCode.topic_authorization_failed: (Reaction.REFUSE, f"the user may not use offsets of this topic: {_ACL}"),
    ErrorCode.group_authorization_failed: (Reaction.FAIL, f"the user may not use this group: {_ACL}"),
    ErrorCode.inconsistent_group_protocol: (Reaction.FAIL, _PROTOCOL),
    ErrorCode.fenced_instance_id: (Reaction.FAIL, _FENCED),
    ErrorCode.invalid_session_timeout: (Reaction.FAIL, f"the broker doesn't allow this session_timeout_ms: {_LIMITS}"),
    ErrorCode.invalid_group_id: (Reaction.FAIL, "the broker refuses this group id: choose another application_id"),
    ErrorCode.group_max_size_reached: (Reaction.FAIL, "full: raise group.max.size, or run fewer stream threads"),
    ErrorCode.unsupported_version: (Reaction.FAIL, "the broker is too old: Apache Kafka 3.2 is needed"),
    ErrorCode.unknown_server_error: (Reaction.FAIL, _BROKEN),
}


_NO_COMMON_PROTOCOL = ErrorCode.inconsistent_group_protocol


FORBIDDEN: Final = frozenset({ErrorCode.group_authorization_failed, ErrorCode.topic_authorization_failed})
"""The codes that mean that the principal has no right to the group or to a topic's offsets. They raise
`SecurityError`."""

_WRONG_SETTING: Final = 2
_EXIT_CODES: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.invalid_session_timeout: _WRONG_SETTING,
    ErrorCode.invalid_group_id: _WRONG_SETTING,
}


def reaction_to(code: ErrorCode) -> Reaction:
    known = TABLE.get(code)
    if known is not None:
        return known[0]
    return Reaction.RETRY if code.retriable else Reaction.FAIL


def explain(code: ErrorCode) -> str:
    """Returns Kafka's name of the code, and its meaning for a user."""
    meaning = TABLE.get(code, (None, "unexpected here"))[1]
    return f"{code.name.upper()}: {meaning}"


def has_foreign_members(code: ErrorCode) -> bool:
    """True if the group's members speak none of the protocols that were offered."""
    return code is _NO_COMMON_PROTOCOL


def failure(settings: MemberSettings, request: str, code: ErrorCode, others: str = "") -> MembershipError:
    """Returns the error for a code that ends the member or refuses a request. `others`: a text about the group's
    members if they speak another protocol."""
    offered = ""
    if has_foreign_members(code):
        offered = f" (this member offers {', '.join(settings.protocols)}{f'; {others}' if others else ''})"
    kind = SecurityError if code in FORBIDDEN else MembershipError
    error = kind(f"group {settings.group_id}, {request}: {explain(code)}{offered}")
    error.exit_code = _EXIT_CODES.get(code, kind.exit_code)
    return error
