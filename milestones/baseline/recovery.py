"""`RejoinRecovery` is the transaction recovery of the baseline, and does what Kafka Streams does.

*Guarantees*: after an abortable error, or with a stale generation, the transaction is aborted, and no queued output is
sent any more. All processing tasks of the thread are rolled back in place. The recovery doesn't ask whether the member
still belongs to the group: the group says so itself. After a fatal error a new producer fences the old one, the
thread's tasks are lost, and the thread rejoins.
*Assumes*: an engine has only confirmed writes, and knows its changelog offset. So the next owner of a lost task can
restore the rest.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from milestones.common.errors import (
    KafkaUnreachableError,
    RefusedTogetherError,
    StateCorruptError,
    TaskCorruptedError,
    TaskMigratedError,
)
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.failures import ErrorClass, caught, classify, is_fenced, is_retriable
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.common.steps import to_the_end
from milestones.shared_parts.next_producer import patience_ms, ready_for_the_next
from milestones.shared_parts.recovery_at_once import RecoveryAtOnce

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients

log: Final = logging.getLogger(__name__)


class RejoinRecovery(RecoveryAtOnce):
    """Aborts the transaction, if that is enough. Otherwise gives the thread's tasks up."""

    fenced: int
    lost: int

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        super().__init__()
        self._context, self._clients = context, clients
        self.fenced = self.recovered = self.lost = 0

    def recover(self, error: Exception) -> bool:
        match error:
            case TaskCorruptedError() | StaleGenerationError() | StateCorruptError():
                return self._abort(error)
            case RefusedInTransactionError() if error.unknown_topic:
                # If the topic is still unknown later, the client itself refuses the output, and names the topic.
                return self._abort(error)
            case KafkaException() if classify(error) is ErrorClass.ABORTABLE:
                return self._abort(error)
            case TaskMigratedError() | KafkaException():
                return self._lost(error)
            case _:
                raise error

    def _abort(self, error: Exception) -> bool:
        if not self._clients.producer.transactional:
            # Without transactions no fencing helps: the queued outputs would be written behind those of the next owner.
            isolation = BatchIsolation() if isinstance(error, RefusedTogetherError) else None
            to_the_end(self._clients.renew_producer(isolation=isolation))
            return True
        context, producer = self._context, self._clients.producer
        timeout_ms = min(context.config.request_timeout_ms, context.longest_wait_ms)
        failed = caught(lambda: producer.abort(timeout_ms), KafkaException)
        if failed is not None:
            return self._lost(failed)
        if isinstance(error, RefusedTogetherError):
            # If the new producer can't be made, or isn't ready, the next transaction fails as it begins.
            self._renew(isolation=BatchIsolation())
        else:
            to_the_end(ready_for_the_next(self._context, self._clients))
        return True

    def _lost(self, error: Exception) -> bool:
        log.warning(
            "%s: the producer is lost (%s); its tasks are given up and the thread rejoins", self._context.name, error
        )
        self.lost += 1
        self.fenced += is_fenced(error)
        unready = self._renew()
        if unready is not None and not is_retriable(unready.__cause__ or unready):
            raise unready
        return False

    def _renew(self, *, isolation: BatchIsolation | None = None) -> KafkaUnreachableError | None:
        """Replace the producer. Returns the reason if the new one isn't ready in time, else None. A producer that isn't
        ready makes the next transaction fail as it begins, and is replaced then. Meanwhile the stream thread answers
        its group."""
        within_ms = patience_ms(self._context)
        renewal = self._clients.renew_producer(within_ms, isolation=isolation)
        unready = caught(lambda: to_the_end(renewal), KafkaUnreachableError)
        if unready is not None:
            log.warning("%s: no new producer after %d ms: %s", self._context.name, within_ms, unready)
        return unready
