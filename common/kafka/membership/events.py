"""What a member and its owner say to each other.

*Guarantees*: events come in the order in which things happened. After `Lost` and at the start a `JoinNeeded` follows;
after `Failed` nothing does.
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
    """A rebalance has begun, or somebody asked for one: commit, then `join` with what you own."""

    reason: str


@dataclass(frozen=True)
class Assigned:
    """A new generation. `leader`: this member is the one that assigns and that watches the topics."""

    generation: int
    member_id: str
    assignment: Assignment
    leader: bool = False


@dataclass(frozen=True)
class Lost:
    """Others may own our tasks by now: drop the active ones without committing."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """The end of this member, for a reason that waiting won't change."""

    error: MilestonesError


MemberEvent = JoinNeeded | Assigned | Lost | Failed


Assigning = Generator[None, None, Mapping[str, Assignment]]
"""The leader's work in steps: the member sends heartbeats between them. It returns an assignment by member id."""


class Leader(Protocol):
    """Assigns, on the membership thread of the elected member.

    A `MilestonesError` makes this member fail and leave, so that another is elected; a `ConnectionLostError` makes it
    join again.
    """

    def assign(self, members: Mapping[str, Subscription], origin: AssignmentOrigin) -> Assigning:
        """A member that is left out gets an empty assignment. `origin`: of this round. It may take as long as
        `max_poll_interval_ms`, but each step, up to a `yield`, no longer than a third of the session timeout. The steps
        end early (`GeneratorExit`) when the group has gone on."""
        ...


@dataclass(frozen=True)
class Join:
    """*Owner to member.* `number` counts the calls of `join`, `losses` the `Lost` events that the owner had seen."""

    number: int
    losses: int
    subscription: Subscription


@dataclass(frozen=True)
class Rejoin:
    """*Anybody to member.*"""

    reason: str


@dataclass(frozen=True)
class CommitOffsets:
    """*Owner to member.* Answered once into `reply`, None being success; not sent after `deadline_ms`."""

    offsets: Offsets
    deadline_ms: int
    reply: Mailbox[MilestonesError | None]


@dataclass(frozen=True)
class Committed:
    """The answer to `FetchOffsets` of that number; partitions without a committed offset are left out. `error`: a
    `MembershipError` is a refusal, or the end of this member; with any other the generation has ended before."""

    number: int
    offsets: Offsets
    error: MilestonesError | None = None


@dataclass(frozen=True)
class FetchOffsets:
    """*Owner to member.* What is committed for these partitions, once no transaction pends on any of them?"""

    number: int
    partitions: frozenset[TopicPartition]
    reply_to: Mailbox[Committed]


@dataclass(frozen=True)
class Close:
    """*Owner to member.*"""

    leave: bool


Command = Join | Rejoin | CommitOffsets | FetchOffsets | Close


class Membership(NamedTuple):
    """What the member publishes, as one immutable value: generation -1 is none; `joins` is the last one answered."""

    generation: int = -1
    member_id: str = ""
    joins: int = 0
    losses: int = 0
    error: MilestonesError | None = None
