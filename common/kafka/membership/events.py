"""Defines the messages between a group member and its owner.

*Guarantees*: events come in the order in which their causes happened. A `JoinNeeded` comes at the start and after each
`Lost`. No event comes after `Failed`.
*Assumes*: the owner calls `join` within `max_poll_interval_ms` after a `JoinNeeded`.
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
    """A rebalance has begun or was asked for. The owner commits, then calls `join` with the tasks that it owns."""

    reason: str


@dataclass(frozen=True)
class Assigned:
    """The member has joined a new generation. `leader`: True if this member assigns the tasks and watches the
    topics."""

    generation: int
    member_id: str
    assignment: Assignment
    leader: bool = False


@dataclass(frozen=True)
class Lost:
    """Other members may own the tasks by now. The owner drops its active tasks without a commit."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """The member has ended, for a reason that won't pass."""

    error: MilestonesError


MemberEvent = JoinNeeded | Assigned | Lost | Failed


Assigning = Generator[None, None, Mapping[str, Assignment]]
"""A generator with the steps of the leader's work. The member sends heartbeats between the steps. The generator returns
the assignments by member id."""


class Leader(Protocol):
    """The interface of the object that assigns the tasks, in the membership thread of the elected member.

    If it raises `ConnectionLostError`, the member joins the group once more. If it raises another `MilestonesError`,
    the member fails. Unless it is static, it leaves the group, so that the group elects another leader.
    """

    def assign(self, members: Mapping[str, Subscription], origin: AssignmentOrigin) -> Assigning:
        """Assign tasks to these members. A member that is missing in the result gets an empty assignment. `origin`: the
        generation, the leader and the time of this assignment.

        All steps together may take `max_poll_interval_ms`. Each step, up to its `yield`, may take at most a third of
        the session timeout. If the group begins another rebalance, the generator is closed (`GeneratorExit`)."""
        ...


@dataclass(frozen=True)
class Join:
    """*Owner to member.* Join the group. `number`: the number of `join` calls so far. `losses`: the number of `Lost`
    events that the owner had seen before the call."""

    number: int
    losses: int
    subscription: Subscription


@dataclass(frozen=True)
class Rejoin:
    """*Any thread to member.* Ask for a rebalance."""

    reason: str


@dataclass(frozen=True)
class CommitOffsets:
    """*Owner to member.* Commit these offsets. `reply` gets one answer: None for success, or the error. The commit
    isn't sent after `deadline_ms`."""

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
    """*Owner to member.* Read the committed offsets of these partitions, once no open transaction contains any of
    them."""

    number: int
    partitions: frozenset[TopicPartition]
    reply_to: Mailbox[Committed]


@dataclass(frozen=True)
class Close:
    """*Owner to member.* End the member. With `leave` it leaves the group."""

    leave: bool


Command = Join | Rejoin | CommitOffsets | FetchOffsets | Close


class Membership(NamedTuple):
    """The membership as all threads see it. `generation` is -1 while the member is in no generation. `joins`: the
    number of the last `Join` that was answered. `losses`: the number of `Lost` events so far."""

    generation: int = -1
    member_id: str = ""
    joins: int = 0
    losses: int = 0
    error: MilestonesError | None = None
