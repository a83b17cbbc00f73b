"""Commit of the baseline: the stream thread commits all its tasks at once (docs/architecture.md, Commit).

*Guarantees*: what Kafka confirmed is applied to the engines, nothing else is; every task's offsets go with its
outputs, also when they didn't move (an empty list of offsets wouldn't be fenced).
*Assumes*: every task was `committable`; one that isn't any more is left to the next commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError, StateError, TaskCorruptedError, TaskMigratedError
from milestones.common.kafka.failures import is_retriable
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.testing.faults import reach

if TYPE_CHECKING:
    from milestones.common.task.task import PendingCommit, Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Confirmation, OutputCollection, Processing, Sending


log = logging.getLogger(__name__)


NO_ROOM = "the client had no room for all outputs of a commit in time: Kafka doesn't take what it has"


class Committer:
    """Commits the tasks of one thread.

    1. Freeze each task at its last boundary. 2. Send what is left and flush. 3. Confirm. 4. Apply to the engines.
    """

    def __init__(
        self, clients: Sending, collection: OutputCollection, confirmation: Confirmation, processing: Processing
    ) -> None:
        self._clients, self._collection, self._confirmation = clients, collection, confirmation
        self._processing = processing

    def commit(self, tasks: Collection[Task]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        pending: dict[Task, PendingCommit] = {}
        try:
            for task in tasks:
                boundary = task.freeze_if_flushed()
                if boundary is not None:
                    pending[task] = boundary
            if not pending:
                return {}
            reach("commit.before-flush")
            if not self._collection.send(pending, self._confirmation.room_ms):
                raise self._confirmation.unsent(pending)
            self._collection.flush()
            reach("commit.after-flush")
            offsets = {
                partition: OffsetAndMetadata(offset, boundary.metadata[partition])
                for boundary in pending.values()
                for partition, offset in boundary.offsets.items()
            }
            self._confirmation.confirm(offsets)
        except BaseException:
            self._confirmation.failed(pending)
            raise
        reach("commit.after-commit")
        self._apply(pending)
        reach("commit.after-apply")
        return offsets

    def _apply(self, pending: Mapping[Task, PendingCommit]) -> None:
        """Every task's part, also when another's disk or store fails: Kafka has committed them all."""
        failed: StateError | None = None
        for task, boundary in pending.items():
            try:
                task.confirmed(boundary, self._collection.changelog_offsets(task))
                self._processing.apply(task)
            except StateError as error:
                log.error("task %s: what was committed can't be written, it will be restored: %s", task.id, error)
                failed = failed or error
            reach("commit.in-apply")
        if failed is not None:
            raise failed


class InTransaction:
    """What all confirmations by transactions have in common: a commit that fails keeps nothing."""

    def __init__(self, context: ThreadContext, clients: Sending) -> None:
        self._context, self._clients = context, clients

    @property
    def room_ms(self) -> int:
        """Until the transaction ends anyway."""
        return max(0, self._context.config.transaction_timeout_ms - (self._clients.producer.age_ms() or 0))

    def unsent(self, pending: Mapping[Task, PendingCommit]) -> MilestonesError:
        return TaskCorruptedError(NO_ROOM, [task.id for task in pending])

    def failed(self, pending: Mapping[Task, PendingCommit]) -> None:
        """Nothing: the roll-back that follows the abort drops what was staged."""


class Transaction(InTransaction):
    """`exactly_once_v2` (KIP-447): outputs, changelogs and offsets of all tasks in one transaction."""

    def confirm(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        producer, metadata = self._clients.producer, self._clients.member.metadata()
        producer.begin()
        self._retrying(lambda: producer.send_offsets(offsets, metadata, 10_000), "send_offsets_to_transaction")
        reach("commit.after-offsets")
        self._retrying(lambda: producer.commit(10_000), "commit_transaction")

    def _retrying(self, call: Callable[[], None], what: str) -> None:
        """When the outcome stays unknown, the thread gives its tasks up."""
        try:
            self._context.retry_policy.retry(call, is_retriable)
        except KafkaException as exception:
            if is_retriable(exception):
                raise TaskMigratedError(
                    f"{what} had no answer in time (task_timeout_ms; less for a thread that is to stop): {exception}"
                ) from exception
            raise


class OffsetCommit:
    """`at_least_once`: our own OffsetCommit with the generation. When it fails, all is kept for the next commit."""

    room_ms = 2_000

    def __init__(self, context: ThreadContext, clients: Sending) -> None:
        self._context, self._clients = context, clients

    def unsent(self, pending: Mapping[Task, PendingCommit]) -> MilestonesError:
        return CommitRetriableError(NO_ROOM)

    def confirm(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        reach("commit.after-offsets")
        self._clients.member.commit_offsets(offsets, self._context.config.request_timeout_ms)

    def failed(self, pending: Mapping[Task, PendingCommit]) -> None:
        for task, boundary in pending.items():
            task.thaw(boundary)
