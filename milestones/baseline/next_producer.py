"""`ready_for_the_next`: replaces a producer that mustn't make another transaction.

Before KIP-890, a request that ends a transaction doesn't name it. When a connection breaks, the client sends such a
request again on another connection; the first request may arrive later, and end the next transaction of the same epoch:
a part of that transaction's records is committed without its offsets, or lost.

*Guarantees*: a producer that has lost a connection begins no transaction. The changelog offsets that Kafka has
acknowledged pass on to the new producer.
*Assumes*: no transaction is open. A failure here undoes no commit.
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
    """A `Transaction` of a stream thread, after whose end the producer is made ready for the next one."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        super().__init__(context, clients)
        self._all_clients = clients

    def end(self, offsets: Offsets) -> Steps[None]:
        yield from super().end(offsets)
        ready_for_the_next(self._context, self._all_clients, self._context.config.max_poll_interval_ms // NEXT_SHARE)


def ready_for_the_next(context: ThreadContext, clients: Clients, within_ms: int) -> None:
    """Replace the producer if it has lost a connection, is dead, or sends one record per batch. A producer that can't
    be made within `within_ms`, or within the time left to a thread that is to stop, is made when the next output is
    sent."""
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
