"""Runs recoveries from errors: finds which task an error belongs to, drives `Recovery`, and then moves the tasks.

    error ---> waits for the commit under way ---> blamed on a task, or not ---> recovery, in steps ---> what follows
                     | that one fails: its error comes first     | without transactions: no recovery

*Guarantees*: there is one recovery at a time, and none during a commit. Errors are answered in the order in which they
came. An error that isn't about transactions is re-raised.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from confluent_kafka import KafkaException

from milestones.common.errors import (
    LeftOutError,
    MilestonesError,
    RefusedTogetherError,
    StateCorruptError,
    TaskCorruptedError,
    UnsentError,
)
from milestones.common.kafka.failures import caught
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.common.steps import AT_ONCE_MS
from milestones.parts import Attribution, OpenTransaction, Recovered
from milestones.parts.transaction import CommitAction, CommitEvent
from milestones.stream_thread.commits.error_series import ErrorSeries

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, FailedCommit, OutputCollection, Recovery, TaskFailurePolicy
    from milestones.stream_thread.commits.driver import CommitDriver
    from milestones.stream_thread.commits.transaction_register import TransactionRegister
    from milestones.stream_thread.tasks import ThreadTasks

T = TypeVar("T")

log: Final = logging.getLogger(__name__)

OF_ONE_TRANSACTION = KafkaException, TaskCorruptedError, RefusedInTransactionError
"""While tasks are isolated in transactions of their own, these errors roll back only the tasks of the transaction."""


@dataclass(frozen=True)
class Recovering:
    """A recovery that is under way. `error`: the error that it recovers from. `guilty`: the tasks whose uncommitted
    work is void in any case. `rolled_back`: the tasks to roll back, None for all. `given_up`: True if the tasks are
    given up, and nothing is rolled back."""

    error: Exception
    guilty: Set[TaskId]
    rolled_back: Set[TaskId] | None
    given_up: bool = False


class Recoveries:
    """*Owns*: the recovery under way, the errors that wait for it, and the series of errors (`ErrorSeries`).

    `stalls`: how often Kafka hasn't taken outputs in time.
    """

    stalls: int

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        recovery: Recovery,
        collection: OutputCollection,
        commits: CommitDriver,
        tasks: ThreadTasks,
        ends: TaskFailurePolicy,
        register: TransactionRegister,
        failed_commit: FailedCommit,
    ) -> None:
        self._context, self._clients, self._clock = context, clients, context.clock
        self._recovery, self._collection, self._commits = recovery, collection, commits
        self._tasks, self._ends = tasks, ends
        self._error_series = ErrorSeries(context.config.task_timeout_ms)
        self._register, self._errors, self._failed_commit = register, register.errors, failed_commit
        self._given_up: Exception | None = None
        self.stalls = 0

    @property
    def under_way(self) -> bool:
        """True while an error waits for its recovery, or is being recovered from."""
        return bool(self._errors)

    def recover(self, error: Exception, turn_ms: int) -> None:
        """Answer an error of the turn that began at `turn_ms`. The recovery from this error begins now, or after the
        recovery or the commit that is under way."""
        waiting = self._errors.waiting
        if all(str(error) != str(other) for other, _ in waiting):  # each turn meets an error that still waits
            waiting.append((error, turn_ms))
        self.run_once(0)

    def run_once(self, wait_ms: int) -> None:
        """Take steps of the recovery, and of the commit before it, as long as Kafka answers within about `wait_ms`."""
        while self.under_way:
            if self._errors.recovering is None:
                _, turn_ms = self._errors.waiting[0]
                if not self._commit_is_over(turn_ms):
                    return
                if self._errors.waiting:
                    self._begin(*self._errors.waiting.popleft())
            if self._errors.recovering is not None and not self._go_on(self._errors.recovering, wait_ms):
                return

    def finish(self) -> None:
        """Take all remaining steps of the recovery, but no steps of a commit."""
        while self.under_way and not self._commits.under_way:
            self.run_once(AT_ONCE_MS)

    def _commit_is_over(self, turn_ms: int) -> bool:
        """Settle the commit under way. Returns True if no commit is left. If the commit fails, its error is answered
        first."""
        if self._register.answer(CommitEvent.ERROR) is CommitAction.RECOVER:
            return True
        failed = caught(self._commits.settle, KafkaException, MilestonesError)
        if failed is not None:
            self._errors.waiting.appendleft((failed, turn_ms))
        return not self._commits.under_way

    def _begin(self, error: Exception, turn_ms: int) -> None:
        if error is self._given_up:
            self._given_up = None
            self._errors.recovering = Recovering(error, frozenset(), None, given_up=True)
            self._try(lambda: self._recovery.begin(error))
            return
        self.stalls += isinstance(error, UnsentError) and not isinstance(error, LeftOutError | RefusedTogetherError)
        isolated, transaction = self._ends.isolating, self._transaction()
        attribution = self._ends.attribute(error, transaction)
        guilty = corrupted_by(error)
        if attribution is not None and attribution.failed is not None:
            guilty |= {attribution.failed}
        apart: Set[TaskId] | None = transaction.reached.keys() | guilty if attribution is not None else None
        if attribution is None:
            self._error_series.note(error, self._commits.commits, turn_ms, self._clock.monotonic_ms())
            if isolated and isinstance(error, OF_ONE_TRANSACTION):
                apart = transaction.reached.keys() | guilty
        else:
            self._fail(attribution, error)
            if not self._clients.producer.transactional:
                # What the other tasks have sent stays sent. It may belong to the commit that failed, which is repeated.
                self._commits.commit_once_more(without=guilty)
                return
            error = attribution.void(f"the transaction has an output that isn't taken: {error}", transaction.reached)
        self._errors.recovering = Recovering(error, guilty, apart)
        self._try(lambda: self._recovery.begin(error))

    def _fail(self, attribution: Attribution, error: Exception) -> None:
        if attribution.failed is not None:
            self._tasks.failures.note(attribution.failed, error, void=True)
            self._tasks.failures.tell()
            self._error_series.explained()

    def _transaction(self) -> OpenTransaction:
        """Return the transaction that is open, or the last one, with the tasks that are in it."""
        producer, processing = self._clients.producer, self._tasks.processing
        frozen = self._commits.unconfirmed
        ids = producer.contributors | frozen.keys()
        reached = {
            id: self._failed_commit.reached(processing[id], frozen.get(id)) for id in ids if id in processing
        }
        return OpenTransaction(reached, identifies_rejected=producer.isolation is not None)

    def _go_on(self, recovering: Recovering, wait_ms: int) -> bool:
        """Take steps of the recovery. Returns True if it is over."""
        recovered = self._try(lambda: self._recovery.run_once(wait_ms))
        if recovered is None:
            return False
        self._errors.recovering = None
        if recovering.given_up:
            self._collection.resend_unconfirmed({})
        else:
            self._error_series.over(self._clock.monotonic_ms())
            self._follow(recovered, recovering)
        return True

    def _follow(self, recovered: Recovered, recovering: Recovering) -> None:
        error = recovering.error
        if recovered is not Recovered.SEND_AGAIN:
            self._commits.drop_unconfirmed()
        if recovered is Recovered.LOST:
            self._collection.resend_unconfirmed({})
            self._tasks.close(self._tasks.owned)
            self._clients.member.request_rejoin(f"tasks lost: {error}")
            return
        if recovered is Recovered.SEND_AGAIN:
            log.info("%s: what the transaction held is sent again (%s)", self._context.name, error)
            innocent = {id: task for id, task in self._tasks.processing.items() if id not in recovering.guilty}
            self._collection.resend_unconfirmed(innocent)
            self._commits.commit_once_more(without=recovering.guilty)
            if recovering.guilty:
                self._tasks.roll_back(recovering.guilty)
        else:
            log.info("%s: transaction aborted (%s); tasks go on from their last commit", self._context.name, error)
            self._tasks.roll_back(recovering.rolled_back)
        if isinstance(error, StateCorruptError):
            self._tasks.rebuild(error.damaged, error)

    def _try(self, step: Callable[[], T]) -> T:
        """Take a step. If it raises, the recovery ends, and so does the thread."""
        try:
            return step()
        except BaseException:
            self._errors.recovering = None
            raise

    def give_up(self, reason: str) -> None:
        """Abort the transaction, because the active tasks are lost, and another member may have them by now. The caller
        closes them. If a recovery is under way, the producer is in a call, so this recovery is finished first."""
        self._errors.waiting.clear()
        self._commits.abandon()
        self._commits.drop_unconfirmed()
        if self._errors.recovering is not None:
            self._errors.recovering = replace(self._errors.recovering, given_up=True)
        self._given_up = TaskCorruptedError(reason, self._tasks.owned)
        self._errors.waiting.append((self._given_up, self._clock.monotonic_ms()))
        self.run_once(0)

    def abandon(self) -> None:
        """Drop the recovery, the waiting errors and the commit."""
        self._errors.waiting.clear()
        self._errors.recovering = None
        self._recovery.abandon()
        self._commits.abandon()


def corrupted_by(error: BaseException) -> frozenset[TaskId]:
    """Return the tasks whose uncommitted work this error makes void."""
    if isinstance(error, StateCorruptError):
        return frozenset(id for id, _ in error.damaged)
    return error.tasks if isinstance(error, TaskCorruptedError) and not isinstance(error, UnsentError) else frozenset()
