"""The Kafka clients of a thread, and their factory.

*Guarantees*: a client belongs to the thread that asks for it.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milestones.common.kafka.batch_isolation import BatchIsolation
    from milestones.common.kafka.consumers import AssignedConsumer
    from milestones.common.kafka.membership import GroupMember
    from milestones.common.kafka.producer import OutputProducer
    from milestones.common.records import OffsetAndMetadata, TopicPartition
    from milestones.common.steps import Steps


class ClientFactory(Protocol):
    """Makes Kafka clients. Each client belongs to the thread that asks for it."""

    def consumer(self) -> AssignedConsumer: ...

    def restore_consumer(self) -> AssignedConsumer: ...

    def producer(self, *, isolation: BatchIsolation | None = None) -> OutputProducer:
        """Return a producer that isn't initialised yet. `isolation`: how the producer finds out which outputs Kafka
        refuses."""
        ...

    def member(self, tell: Callable[[int, int], None]) -> GroupMember:
        """Return a group member that isn't started yet. The member calls `tell(now_ms, silent_ms)` with the time for
        which its coordinator has been silent."""
        ...


class CommitMember(Protocol):
    """The calls of a group member that a commit needs. They prove that the tasks belong to this thread."""

    def metadata(self) -> bytes:
        """Return the group metadata for `send_offsets_to_transaction`. Raises `StaleGenerationError` without a
        generation."""
        ...

    def begin_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Begin an OffsetCommit under the generation; `commit_returned` says when Kafka has answered."""
        ...

    def commit_returned(self, wait_ms: int) -> bool:
        """Wait at most `wait_ms` for Kafka's answer to the commit. Returns True if Kafka has made the commit. Raises
        the errors of `GroupMember.commit_returned`."""
        ...

    def session_over(self) -> bool:
        """True if the group may have given the tasks to other members by now."""
        ...


class Sending(Protocol):
    """The clients that collection and commit use."""

    @property
    def producer(self) -> OutputProducer: ...

    @property
    def member(self) -> CommitMember: ...


class ReadClients(Protocol):
    """The clients that inputs, tasks and restoration use."""

    @property
    def consumer(self) -> AssignedConsumer: ...

    def new_restore_consumer(self) -> AssignedConsumer:
        """Return a restore consumer that belongs to the calling thread, which must close it."""
        ...


class Clients(ReadClients, Protocol):
    """The Kafka clients of one thread, which owns them."""

    consumer: AssignedConsumer
    producer: OutputProducer
    member: GroupMember

    def renew_producer(self, within_ms: int | None = None, *, isolation: BatchIsolation | None = None) -> Steps[None]:
        """Replace the producer, in steps, by an initialised one of the same transactional id. The new producer fences
        the old one. `isolation`: as in `ClientFactory.producer`.

        Raises `KafkaUnreachableError` in two cases. If it takes longer than `within_ms` (`task_timeout_ms` by default),
        the new producer is in place, and its first transaction fails. If no producer can be made, the old one stays in
        place: a transactional one is closed, so that its next call fails; one without transactions stays in use."""
        ...

    def close(self, *, leave_group: bool) -> None:
        """Close all clients, even if one of them fails to close."""
        ...
