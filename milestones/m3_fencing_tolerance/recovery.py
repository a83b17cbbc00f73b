"""Transaction recovery in place (KIP-588, KAFKA-9803).

                   abortable            fatal, or no answer
       +---------+  error   +---------+   error    +-----------+   +-----------+
       | HEALTHY |--------->| ABORT   |----------->|  REBUILD  |-->|  VERIFY   |
       +---------+          +---------+  it fails  |(init ends |   |(heartbeat:|
            ^                    |                 |   the old |   | member and|
            |                    v                 |   one)    |   | generation|
            |               +-----------+          +-----------+   |   hold?)  |
            +---------------| ROLL BACK |<-----------------------yes-----+  no |
             positions read +-----------+                          +-----------+
             stable, again                                               v
             under a heartbeat                            LOST: tasks closed, rejoin

One call of `recover` takes the boxes up to VERIFY. The stream thread's loop does ROLL BACK or LOST. The client has one
fatal error for "timed out" and "taken over", so the error alone decides nothing. A new producer of the same
transactional id ends the open transaction. Then the group is asked whether the tasks still belong to the stream thread.
A member that joins isn't asked, and a silent coordinator is assumed to keep the member for a session. What proves the
membership is the read of the positions, under a heartbeat, before a task processes further records.

*Guarantees*: after an error of the producer, a recovery closes and wipes no store and asks for no rebalance. If the
last call that ended a transaction had no answer, its producer sends nothing more. A recovery takes no longer than its
`Budget`. Without transactions a new producer drops the queue of the old one.
*Assumes*: when `recover` returns True, the loop rolls the tasks back and reads their positions once they are stable.
The loop restores damaged stores. The loop also restores tasks whose positions show that Kafka has made a commit which
was taken for rolled back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from milestones.common.errors import (
    KafkaUnreachableError,
    RefusedTogetherError,
    RejectionIdentifiedError,
    StateCorruptError,
    TaskCorruptedError,
    TaskMigratedError,
    TransactionalIdError,
)
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.failures import caught, error_of, is_stale_member
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.kafka.producer import can_start_another_transaction
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.common.steps import Steps, caught_in_steps, to_the_end, until_returned
from milestones.m3_fencing_tolerance.errors import RolledBackError, UnknownOutcomeError
from milestones.m3_fencing_tolerance.group_questions import GroupQuestions
from milestones.m3_fencing_tolerance.producer_errors import ProducerReaction, reaction_to
from milestones.m3_fencing_tolerance.recovery_deadline import Budget
from milestones.m3_fencing_tolerance.takeovers import Takeovers
from milestones.shared_parts.recovery_at_once import RecoveryAtOnce

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients

log: Final = logging.getLogger(__name__)

class InPlaceRecovery(RecoveryAtOnce):
    """Replaces the producer and keeps the tasks. Counters for metrics: `fenced`, `recovered` in place, `lost`."""

    recovered: int
    lost: int

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        super().__init__()
        self._context, self._clients = context, clients
        self._group = GroupQuestions(context, clients)
        self._takeovers = Takeovers(context)
        self.recovered = self.lost = 0

    @property
    def fenced(self) -> int:
        return self._takeovers.fenced

    def recover(self, error: Exception) -> bool:
        return to_the_end(self.recovery(error))

    def recovery(self, error: Exception) -> Steps[bool]:
        """Recover from this error, in steps. Returns, as `recover` does, whether the tasks are to be rolled back."""
        budget, producer = Budget(self._context), self._clients.producer
        match error:
            case RolledBackError():
                self._takeovers.note(error.cause, error.age_ms)
                return self._recovered(error.cause, budget)
            case TaskCorruptedError() if not self._has_generation():
                return self._lost(budget)
            case RefusedInTransactionError() if error.single and producer.isolation is None:
                # Sent once more, each output alone: then the handler of the refused output is asked (KIP-691).
                return self._rebuild(error, budget, isolation=self.isolation(error, producer.isolation))
            case RefusedTogetherError() if producer.transactional or producer.isolation is not None:
                return self._rebuild(error, budget, isolation=self.isolation(error, producer.isolation))
            case TaskCorruptedError() if producer.isolation is not None:
                # Kafka has refused a record: the producer's sequence numbers have a gap in its place.
                isolation = None if self.identifies_rejected(error) else producer.isolation
                return self._rebuild(error, budget, isolation=isolation)
            case TaskCorruptedError() | StateCorruptError():
                return self._abort(error, budget, ask=False)
            case StaleGenerationError():
                return self._abort(error, budget, ask=True)
            case TaskMigratedError():
                if isinstance(error, UnknownOutcomeError):
                    self._takeovers.note(error.cause, error.age_ms)
                return self._migrated(error, budget)
            case KafkaException():
                return self._answer(error, budget)
            case _:
                raise error

    def isolation(self, error: Exception, before: BatchIsolation | None) -> BatchIsolation:
        """Return how the next outputs are isolated in batches, after an error about outputs that Kafka has refused
        together. `before`: how they were isolated so far."""
        return BatchIsolation()

    def identifies_rejected(self, error: Exception) -> bool:
        """Return whether the error says which outputs Kafka refuses."""
        return isinstance(error, RejectionIdentifiedError)

    def _answer(self, error: KafkaException, budget: Budget, *, may_abort: bool = True) -> Steps[bool]:
        self._takeovers.note(error, self._clients.producer.age_ms())
        reaction = reaction_to(error)
        if reaction is ProducerReaction.FAIL:
            raise self._refused(error) from error
        if reaction is ProducerReaction.ABORT and may_abort:
            return (yield from self._abort(error, budget, ask=is_stale_member(error)))
        return (yield from self._rebuild(error, budget))

    def _abort(self, error: Exception, budget: Budget, *, ask: bool) -> Steps[bool]:
        """Abort the transaction, or replace the producer when the abort fails. `ask`: the group has refused the
        generation, so ask it whether the membership is over."""
        producer = self._clients.producer
        if not producer.transactional:
            # Without transactions no fencing helps: the queued outputs would be written behind those of the next owner.
            isolation = self.isolation(error, producer.isolation) if isinstance(error, RefusedTogetherError) else None
            yield from self._clients.renew_producer(isolation=isolation)
            return not ask or (yield from self._holds(budget)) or self._give_up(error)
        if (failed := (yield from self._try_abort(budget))) is not None:
            return (yield from self._answer(failed, budget, may_abort=False))
        if not can_start_another_transaction(producer):
            return (yield from self._rebuild(error, budget))
        return not ask or (yield from self._holds(budget)) or self._give_up(error)

    def _try_abort(self, budget: Budget) -> Steps[KafkaException | None]:
        abort_ms = budget.left_ms(self._context.config.request_timeout_ms)
        failed = yield from caught_in_steps(self._aborted(abort_ms), KafkaException)
        if failed is not None:
            log.info("%s: the transaction can't be aborted: %s", self._context.name, failed)
        return failed

    def _aborted(self, within_ms: int) -> Steps[None]:
        self._clients.producer.begin_abort(within_ms)
        yield from until_returned(self._clients.producer.returned)

    def _lost(self, budget: Budget) -> Steps[bool]:
        """Recover when the tasks are lost already."""
        yield from self._drop_uncommitted(budget)
        return False

    def _migrated(self, error: TaskMigratedError, budget: Budget) -> Steps[bool]:
        yield from self._drop_uncommitted(budget)
        return self._give_up(error)

    def _drop_uncommitted(self, budget: Budget) -> Steps[None]:
        """Abort, or throw away, the outputs that lost tasks have sent. A new producer has little time, as the loop is
        about to close the tasks. If it isn't ready in time, the next output has it initialised. Without transactions
        the old producer must send none of these outputs: if no new producer can be made, the error ends the thread."""
        producer, age_ms = self._clients.producer, self._clients.producer.age_ms()
        if not producer.transactional:
            yield from self._clients.renew_producer()
            return
        spoilt = producer.busy  # the producer is in a call whose steps were abandoned
        if not spoilt and (failed := (yield from self._try_abort(budget))) is not None:
            self._takeovers.note(failed, age_ms)
            spoilt = True
        if spoilt or not can_start_another_transaction(producer):
            within_ms = budget.left_ms(self._context.config.heartbeat_interval_ms)
            yield from caught_in_steps(self._clients.renew_producer(within_ms), KafkaUnreachableError)

    def _rebuild(self, error: Exception, budget: Budget, *, isolation: BatchIsolation | None = None) -> Steps[bool]:
        """Replace the producer, then ask the group. If the new producer isn't ready in time, the next output has it
        initialised, and an error of that leads here once more. In the meantime the loop answers the group."""
        renewal = self._clients.renew_producer(budget.left_ms(), isolation=isolation)
        unready = yield from caught_in_steps(renewal, KafkaUnreachableError)
        if unready is None:
            return (yield from self._recovered(error, budget))
        self._check(unready)
        log.warning("%s: no new producer after %d ms: %s", self._context.name, budget.spent_ms(), unready)
        return (yield from self._holds(budget)) or self._give_up(error)

    def _check(self, unready: KafkaUnreachableError) -> None:
        """Raise an error that ends the thread, if no later try to initialise a producer can succeed."""
        cause = unready.__cause__
        if not isinstance(cause, KafkaException):
            raise unready
        self._takeovers.note(cause, None)
        if reaction_to(cause) is ProducerReaction.FAIL:
            raise self._refused(cause) from unready

    def _recovered(self, error: Exception, budget: Budget) -> Steps[bool]:
        if not (yield from self._holds(budget)):
            return self._give_up(error)
        self.recovered += 1
        log.warning(
            "%s: recovered in place after %d ms, no rebalance: %s", self._context.name, budget.spent_ms(), error
        )
        return True

    def _has_generation(self) -> bool:
        return caught(self._clients.member.metadata, StaleGenerationError) is None

    def _holds(self, budget: Budget) -> Steps[bool]:
        return self._group.holds(budget.left_ms(self._context.config.heartbeat_interval_ms))

    def _give_up(self, error: Exception) -> bool:
        """Log that the tasks are lost, and return False. If the new producer isn't initialised, sending the next output
        fails, and the producer is replaced then."""
        self.lost += 1
        log.warning("%s: its tasks are given up and the thread rejoins: %s", self._context.name, error)
        return False

    def _refused(self, error: KafkaException) -> TransactionalIdError:
        return TransactionalIdError(
            f"Kafka refuses the transactions of {self._context.transactional_id}: {error_of(error)}; grant the user "
            "WRITE and DESCRIBE on the transactional id, READ on the group, and check transaction_timeout_ms against "
            "the broker's transaction.max.timeout.ms"
        )
