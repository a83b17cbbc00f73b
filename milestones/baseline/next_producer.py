"""Which producer makes the next transaction.

With Kafka's transactions before KIP-890 the request that ends one doesn't say which one it means. When a connection
breaks, the client sends the request again on another; the first one may arrive later, and end the next transaction of
the same epoch: a part of its records is committed without its offsets, or lost.

*Guarantees*: no transaction is begun by a producer that has lost a connection before it; the offsets that Kafka has
acknowledged pass on to the new producer.
*Assumes*: no transaction is open. What has been committed stays so, whatever happens here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from milestones.baseline.committing import Offsets, Transaction
from milestones.common.errors import KafkaUnreachableError
from milestones.common.kafka.producer import can_start_another_transaction
from milestones.common.steps import Steps

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients

log = logging.getLogger(__name__)


NEXT_SHARE = 4
"""The share of `max_poll_interval_ms` that a new producer for the next transaction may take."""


class ThreadTransaction(Transaction):
    """A `Transaction` of a stream thread, which makes the next one too."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        super().__init__(context, clients)
        self._all_clients = clients

    def end(self, offsets: Offsets) -> Steps[None]:
        yield from super().end(offsets)
        ready_for_the_next(self._context, self._all_clients, self._context.config.max_poll_interval_ms // NEXT_SHARE)


def ready_for_the_next(context: ThreadContext, clients: Clients, within_ms: int) -> None:
    """Keep the producer, unless it has lost a connection, is dead, or was made to tell outputs apart. One that can't be
    made within `within_ms`, or what a thread that is to stop has left, is made when something is to be sent."""
    producer = clients.producer
    if can_start_another_transaction(producer) and not producer.one_record_per_batch:
        return
    acknowledged = dict(producer.acknowledged)
    log.info("%s: the next transaction gets a new producer", context.name)
    try:
        clients.renew_producer(max(1, int(min(within_ms, context.retry_policy.rest_ms()))))
    except KafkaUnreachableError as error:
        log.warning("%s: the next transaction's producer isn't ready yet: %s", context.name, error)
    clients.producer.acknowledged.update(acknowledged)
