"""A commit as steps, each begun and looked at (docs/architecture.md, Commit); the baseline's takes them all at once.

*Guarantees*: what Kafka confirmed is applied to the engines, nothing else is; every task's offsets go with its
outputs, also when they didn't move (an empty list of offsets wouldn't be fenced).
*Assumes*: driven by the thread that owns the tasks; while a commit is under way none of its tasks is rolled back,
closed or given away, and only the commit uses the producer, unless it `collects_beside`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from confluent_kafka import KafkaException

from milestones.baseline.next_producer import ready_for_the_next
from milestones.common.errors import MilestonesError, OwnershipError, StateError, TaskMigratedError, UnsentError
from milestones.common.kafka.failures import is_retriable
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.steps import Steps, until_done, until_returned
from milestones.common.task.commit_set import CommitSet, offsets_of
from milestones.common.testing.faults import reach
from milestones.parts import CommitStep

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, CommitGate, Confirmation, OutputCollection, Sending


log: Final = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]

CALL_MS = 10_000
"""The time-out of one transactional call; a call without an answer by then is made again."""

NO_ROOM = "the client had no room for all outputs of a commit in time: Kafka doesn't take what it has"


def end_begun() -> None:
    """The request that makes a commit is on its way."""
    reach("commit.ending")


class Committer:
    """Commits tasks of one thread, step by step. Where a failed commit isn't kept nothing else is sent beside one.

    1. Send what is left and flush. 2. Confirm: offsets, end. 3. Apply to the engines.
    """

    keeps = False

    def __init__(
        self, clients: Sending, collection: OutputCollection, confirmation: Confirmation, processing: CommitGate
    ) -> None:
        self._clients, self._collection, self._confirmation = clients, collection, confirmation
        self._processing = processing
        self._steps: Steps[Offsets] | None = None
        self.step: CommitStep | None = None

    @property
    def joins_beside(self) -> bool:
        return self.step is None or (self.step is CommitStep.ENDING and not self._confirmation.generation_counts)

    @property
    def collects_beside(self) -> bool:
        """What is sent beside the end must be kept, as it may have to be sent again."""
        return self.keeps and self.step is CommitStep.ENDING and self._confirmation.sends_beside

    def begin(self, commit_set: CommitSet) -> None:
        if self._steps is not None:
            raise OwnershipError("a commit is under way. This is a bug")
        self.step, self._steps = CommitStep.SENDING, self._commit(commit_set)
        next(self._steps)

    def run_once(self, wait_ms: int) -> Offsets | None:
        if self._steps is None:
            raise OwnershipError("no commit is under way. This is a bug")
        try:
            self._steps.send(wait_ms)
        except StopIteration as end:
            self.step = self._steps = None
            committed: Offsets = end.value
            return committed
        except BaseException:
            self.step = self._steps = None
            raise
        return None

    def abandon(self) -> None:
        steps, self.step, self._steps = self._steps, None, None
        if steps is not None:
            steps.close()

    def _commit(self, commit_set: CommitSet) -> Steps[Offsets]:
        try:
            yield
            if not commit_set:
                return {}
            reach("commit.before-flush")
            if not (yield from self._collection.send(commit_set, self._confirmation.room_ms)):
                raise self._confirmation.unsent(commit_set)
            self.step = CommitStep.FLUSHING
            yield from self._collection.flush()
            reach("commit.after-flush")
            offsets = offsets_of(commit_set)
            self.step = CommitStep.OFFSETS
            yield from self._confirmation.hand_over(offsets)
            reach("commit.after-offsets")
            self.step = CommitStep.ENDING
            yield from self._confirmation.end(offsets)
        except BaseException:
            self._confirmation.failed(commit_set)
            raise
        for task, boundary in commit_set.items():
            task.confirmed(boundary, self._collection.take_changelog_offsets(task))
        try:
            reach("commit.after-commit")
        finally:  # no error undoes what Kafka has committed
            self._apply(commit_set)
        reach("commit.after-apply")
        return offsets

    def _apply(self, commit_set: CommitSet) -> None:
        """Every task's part, also when another's disk or store fails: Kafka has committed them all."""
        failed: StateError | None = None
        for task in commit_set:
            try:
                self._processing.apply(task)
            except StateError as error:
                log.error("task %s: what was committed can't be written, it will be restored: %s", task.id, error)
                failed = failed or error
            reach("commit.in-apply")
        if failed is not None:
            raise failed


class WaitingCommitter(Committer):
    """The baseline's: all steps at once, the stream thread waits."""

    def run_once(self, wait_ms: int) -> Offsets | None:
        return until_done(super().run_once)


class InTransaction:
    """What all confirmations by transactions have in common: what follows a commit that fails is up to recovery.

    That the offsets belong to the generation was said when they were handed over: the end is the producer's alone.
    """

    generation_counts = sends_beside = False

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._context, self._clients = context, clients

    @property
    def room_ms(self) -> int:
        """Until the transaction ends anyway. The wait begins anew whenever an output has left."""
        return max(0, self._context.config.transaction_timeout_ms - (self._clients.producer.age_ms() or 0))

    def unsent(self, commit_set: CommitSet) -> MilestonesError:
        return UnsentError(NO_ROOM, [task.id for task in commit_set])

    def begin_end(self, call_ms: int) -> None:
        self._clients.producer.begin_commit(call_ms)
        end_begun()

    def failed(self, commit_set: CommitSet) -> None:
        """Nothing: a roll-back that follows drops what was staged, unless it is sent again."""


class Transaction(InTransaction):
    """`exactly_once_v2` (KIP-447): outputs, changelogs and offsets of all tasks in one transaction. After its end the
    producer is made ready for the next one."""

    def hand_over(self, offsets: Offsets) -> Steps[None]:
        producer, metadata = self._clients.producer, self._clients.member.metadata()
        producer.begin()
        yield from self._retrying(
            lambda: producer.begin_send_offsets(offsets, metadata, self._call_ms), "send_offsets_to_transaction"
        )

    def end(self, offsets: Offsets) -> Steps[None]:
        yield from self._retrying(lambda: self.begin_end(self._call_ms), "commit_transaction")
        yield from ready_for_the_next(self._context, self._clients)

    @property
    def _call_ms(self) -> int:
        return min(CALL_MS, self._context.longest_wait_ms)

    def _retrying(self, begin: Callable[[], None], what: str) -> Steps[None]:
        """When the outcome stays unknown, the thread gives its tasks up."""
        try:
            yield from self._context.retry_policy.steps(begin, self._clients.producer.returned, is_retriable)
        except KafkaException as exception:
            if is_retriable(exception):
                raise TaskMigratedError(
                    f"{what} had no answer in time (task_timeout_ms; less for a thread that is to stop): {exception}"
                ) from exception
            raise


class OffsetCommit:
    """`at_least_once`: our own OffsetCommit with the generation. When it fails, all is kept for the next commit. After
    one that is made, a producer that tells outputs apart is replaced: they are committed."""

    room_ms = 2_000
    generation_counts = True

    @property
    def sends_beside(self) -> bool:
        """A producer that tells outputs apart is replaced at the end, with all that it has."""
        return self._clients.producer.apart is None

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._context, self._clients = context, clients

    def unsent(self, commit_set: CommitSet) -> MilestonesError:
        return CommitRetriableError(NO_ROOM)

    def hand_over(self, offsets: Offsets) -> Steps[None]:
        """They go with the request that ends it."""
        yield from ()

    def end(self, offsets: Offsets) -> Steps[None]:
        member, config = self._clients.member, self._context.config
        # An answer may take twice the time-out (`GroupMember.begin_commit`), and tasks that leave wait for it.
        member.begin_commit(offsets, min(config.request_timeout_ms, self._context.longest_wait_ms // 2))
        end_begun()
        yield from until_returned(member.commit_returned)
        yield from ready_for_the_next(self._context, self._clients)

    def failed(self, commit_set: CommitSet) -> None:
        for task, boundary in commit_set.items():
            task.thaw(boundary)
