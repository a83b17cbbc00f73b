"""The messages between a member and its owner.

*Guarantees*: events come in the order of their causes. A `JoinNeeded` comes at the start and after `Lost`; nothing
comes after `Failed`.
*Assumes*: the owner answers a `JoinNeeded` by `join` within `max_poll_interval_ms`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from milestones.common.assignment.model import Assignment, AssignmentOrigin, Subscription
from milestones.common.errors import MilestonesError
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class JoinNeeded:
    """A rebalance has begun, or was asked for: the owner commits, then calls `join` with the tasks that it owns."""

    reason: str


@dataclass(frozen=True)
class Assigned:
    """A new generation. `leader`: this member assigns, and watches the topics."""

    generation: int
    member_id: str
    assignment: Assignment
    leader: bool = False


@dataclass(frozen=True)
class Lost:
    """Other members may own the tasks by now: the owner drops the active ones without a commit."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """The end of this member, by a lasting reason."""

    error: MilestonesError


MemberEvent = JoinNeeded | Assigned | Lost | Failed


Assigning = Generator[None, None, Mapping[str, Assignment]]
"""The leader's work in steps, between which the member sends heartbeats. Returns the assignments by member id."""


class Leader(Protocol):
    """Assigns tasks, on the membership thread of the elected member.

    A `MilestonesError` makes this member fail and leave, so that another is elected; a `ConnectionLostError` makes the
    member join again.
    """

    def assign(self, members: Mapping[str, Subscription], origin: AssignmentOrigin) -> Assigning:
        """Assign tasks to these members; one that is left out gets an empty assignment. `origin`: the reasons of this
        rebalance. The whole may take `max_poll_interval_ms`, but each step, up to a `yield`, at most a third of the
        session timeout. The steps end early (`GeneratorExit`) when the group has begun another rebalance."""
        ...


@dataclass(frozen=True)
class Join:
    """*Owner to member.* `number` counts the calls of `join`, `losses` the `Lost` events that the owner had seen."""

    number: int
    losses: int
    subscription: Subscription


@dataclass(frozen=True)
class Rejoin:
    """*Any thread to member.* Ask for a rebalance."""

    reason: str


@dataclass(frozen=True)
class CommitOffsets:
    """*Owner to member.* Commit these offsets. Answered once into `reply`, None being success; not sent after
    `deadline_ms`."""

    offsets: Offsets
    deadline_ms: int
    reply: Mailbox[MilestonesError | None]


@dataclass(frozen=True)
class Committed:
    """The answer to the `FetchOffsets` of this number. Partitions without a committed offset are left out. `error`: a
    `MembershipError` means that the group refused, or that this member has ended. Any other error means that the
    generation ended before the answer came."""

    number: int
    offsets: Offsets
    error: MilestonesError | None = None


@dataclass(frozen=True)
class FetchOffsets:
    """*Owner to member.* Ask for the committed offsets of these partitions, once no transaction pends on any of
    them."""

    number: int
    partitions: frozenset[TopicPartition]
    reply_to: Mailbox[Committed]


@dataclass(frozen=True)
class Close:
    """*Owner to member.* End; with `leave` the member leaves the group."""

    leave: bool


Command = Join | Rejoin | CommitOffsets | FetchOffsets | Close


class Membership(NamedTuple):
    """The published membership, one immutable value: generation -1 is none; `joins`: the last `Join` answered."""

    generation: int = -1
    member_id: str = ""
    joins: int = 0
    losses: int = 0
    error: MilestonesError | None = None
