"""`ResolvedTransaction`: ends the transaction of a commit, and finds out how a transaction without an answer ended.

1. Open the transaction, unless it is open; add the offsets. An error so far means that nothing was committed.
2. Ask for the end, and repeat this without an answer, for at most `transaction_timeout_ms`: the broker aborts an open
   transaction of that age.
3. Without an answer, make the transaction end: by an abort that the broker confirms, or by a new producer. Then ask the
   group which commit it has. If the group has this commit, the commit is done. If the group has an earlier commit, this
   one was rolled back. Otherwise the tasks are lost.
4. After a broken connection the request for the end may have been sent twice, and the late second one would end the
   next transaction. So a new producer, with an epoch of its own, makes the next transaction.

*Guarantees*: `end` succeeds only if the offsets were committed. Its errors say how the commit ended, or end the stream
thread. The waits of steps 3 and 4 end within their `Budget`.
*Assumes*: all outputs were acknowledged. No other part ends a transaction that is about to be committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from milestones.common.errors import KafkaUnreachableError
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.steps import Steps, caught_in_steps, until_returned
from milestones.m3_fencing_tolerance.commit_outcome import CommitOutcome, outcome
from milestones.m3_fencing_tolerance.errors import NoAnswerError, RolledBackError, UnknownOutcomeError
from milestones.m3_fencing_tolerance.group_questions import GroupQuestions
from milestones.m3_fencing_tolerance.producer_errors import ProducerReaction, is_retriable, reaction_to
from milestones.m3_fencing_tolerance.recovery_deadline import Budget
from milestones.parts.transaction import CommitStage
from milestones.shared_parts.in_transaction import CALL_MS, InTransaction, Offsets
from milestones.shared_parts.next_producer import ready_for_the_next

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients

log: Final = logging.getLogger(__name__)


class ResolvedTransaction(InTransaction):
    """The confirmation of a commit under `exactly_once_v2`."""

    def __init__(self, context: ThreadContext, clients: Clients, move: Callable[[CommitStage], None]) -> None:
        super().__init__(context, clients, move)
        self._group = GroupQuestions(context, clients)
        self._budget = Budget(context)

    def hand_over(self, offsets: Offsets) -> Steps[None]:
        producer, metadata = self.clients.producer, self.clients.member.metadata()
        producer.begin()
        self._budget = Budget(self.context)
        yield from self._repeat(lambda call_ms: producer.begin_send_offsets(offsets, metadata, call_ms))

    def end(self, offsets: Offsets) -> Steps[None]:
        unanswered: KafkaException | None = None
        try:
            yield from self._repeat(self.begin_end)
        except KafkaException as error:
            unanswered = error
        if unanswered is None:
            yield from ready_for_the_next(self.context, self.clients, Budget(self.context).left_ms())
        else:  # outside of the `except` block: see `failures.caught`
            self.move(CommitStage.RESOLVING)
            yield from self._resolve(unanswered, offsets, Budget(self.context))

    def _repeat(self, begin: Callable[[int], None]) -> Steps[None]:
        """Make the call that `begin` begins, until it has an answer or the commit's time is up. `begin` gets the call's
        time-out."""
        budget, producer = self._budget, self.clients.producer
        within_ms = min(self.context.config.transaction_timeout_ms, budget.left_ms())
        return self.context.retry_policy.steps(
            lambda: begin(budget.left_ms(CALL_MS)), producer.returned, is_retriable, within_ms
        )

    def _resolve(self, error: KafkaException, offsets: Offsets, budget: Budget) -> Steps[None]:
        """Find out, in steps, how the commit ended. Returns if the offsets were committed, otherwise raises."""
        producer = self.clients.producer
        reaction = reaction_to(error)
        aborted = reaction is ProducerReaction.ABORT and (yield from self._aborted(budget))
        if reaction is ProducerReaction.FAIL or aborted:
            raise error
        age_ms, acknowledged = producer.age_ms(), dict(producer.acknowledged)
        try:
            yield from self.clients.renew_producer(budget.left_ms())
            committed = yield from self._group.committed(offsets.keys(), budget.left_ms())
        except (KafkaUnreachableError, KafkaException, NoAnswerError, StaleGenerationError) as unknown:
            # If the tasks were rolled back in place, `Task.compare` would find a commit that was made, and restore its
            # writes. They are lost all the same: the membership isn't proven, and two checks are safer than one.
            raise UnknownOutcomeError(f"how a commit ended isn't known ({error}): {unknown}", error, age_ms) from error
        end = outcome(offsets, committed)
        log.warning(
            "%s: a commit had no answer (%s); the committed offsets say: %s (after %d ms)",
            self.context.name, error, end.value, budget.spent_ms(),
        )  # fmt: skip
        if end is CommitOutcome.ROLLED_BACK:
            raise RolledBackError(error, age_ms) from error
        if end is CommitOutcome.FOREIGN:
            raise UnknownOutcomeError(f"{end.value}, while ours had no answer: {error}", error, age_ms) from error
        self.clients.producer.acknowledged.update(acknowledged)

    def _aborted(self, budget: Budget) -> Steps[bool]:
        """Return whether the broker confirms an abort, which proves that nothing was committed."""
        failed = yield from caught_in_steps(self._abort(budget), KafkaException)
        if failed is not None:
            log.info("%s: a failed commit can't be aborted: %s", self.context.name, failed)
        return failed is None

    def _abort(self, budget: Budget) -> Steps[None]:
        self.clients.producer.begin_abort(budget.left_ms(CALL_MS))
        yield from until_returned(self.clients.producer.returned)
