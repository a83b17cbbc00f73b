"""`ready_for_the_next`: replaces a producer that mustn't make another commit.

*Why this way*: before KIP-890, a request that ends a transaction doesn't name it. When a connection breaks, the client
repeats such a request on another connection. The first request may arrive later, and end the next transaction of the
same epoch. Then a part of that transaction's records is committed without its offsets, or lost.

*Guarantees*: a producer that has lost a connection begins no transaction. librdkafka's log shows the loss
(`ProducerWatch`). An idle connection that a broker closes doesn't count. The new producer gets the changelog offsets
that Kafka has acknowledged to the old one. A failure here undoes no commit: it is logged, and the next use of the
producer fails.
*Assumes*: no transaction is open, and all outputs are flushed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from milestones.common.errors import KafkaUnreachableError
from milestones.common.kafka.producer import can_start_another_transaction
from milestones.common.steps import Steps, caught_in_steps

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients

log: Final = logging.getLogger(__name__)


def patience_ms(context: ThreadContext) -> int:
    """Return the longest wait for a new producer. The wait is shorter for a thread that must stop."""
    return max(1, int(min(context.longest_wait_ms, context.retry_policy.rest_ms())))


def ready_for_the_next(context: ThreadContext, clients: Clients, within_ms: int | None = None) -> Steps[None]:
    """Replace the producer, in steps, if it was looking for a refused output, if it is transactional and has lost a
    connection, or if it is dead. Waits at most `within_ms`, by default `patience_ms`. If no new producer is ready in
    time, or none could be made, the next transaction fails as it begins. Then recovery makes another producer. On the
    baseline the thread loses its tasks in this recovery."""
    producer = clients.producer
    fit = not producer.transactional or can_start_another_transaction(producer)
    if fit and producer.isolation is None:
        return
    acknowledged = dict(producer.acknowledged)
    log.info("%s: the next commit gets a new producer", context.name)
    most_ms = patience_ms(context)
    renewal = clients.renew_producer(most_ms if within_ms is None else min(within_ms, most_ms))
    unready = yield from caught_in_steps(renewal, KafkaUnreachableError)
    if unready is not None:
        log.warning("%s: the producer of the next commit isn't ready: %s", context.name, unready)
    clients.producer.acknowledged.update(acknowledged)
