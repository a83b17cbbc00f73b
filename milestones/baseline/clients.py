"""Client ownership of the baseline: every stream thread has clients of its own.

*Guarantees*: all clients belong to the thread that made this object, restore consumers to the one that asked for
them; when one can't be made, none is left.
*Assumes*: the transactional id is this thread's alone (application, process id, thread).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack

from confluent_kafka import KafkaException

from milestones.common.config import StreamsConfig
from milestones.common.errors import KafkaUnreachableError
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.kafka.failures import error_of, is_retriable
from milestones.common.kafka.leader import TopologyLeader
from milestones.common.kafka.membership import GroupMember
from milestones.common.kafka.patience import Patience
from milestones.common.kafka.producer import OutputProducer
from milestones.context import ThreadContext

log = logging.getLogger(__name__)


class ThreadClients:
    """One thread's consumer, producer and group member; restore consumers for whoever restores."""

    def __init__(self, context: ThreadContext) -> None:
        self._context = context
        config, name = context.config, context.name
        with ExitStack() as unfinished:
            self.consumer = AssignedConsumer(config.consumer_settings(name))
            unfinished.callback(self.consumer.close)
            self.producer = self._new_producer()
            unfinished.callback(self.producer.close)
            leader = TopologyLeader(config, context.application.subtopologies, f"{name}-leader")
            self.member = GroupMember(config.member_settings(name, context.index), leader, context.clock)
            unfinished.pop_all()

    def new_restore_consumer(self) -> AssignedConsumer:
        return AssignedConsumer(self._context.config.restore_consumer_settings(self._context.name))

    def renew_producer(self) -> None:
        self.producer.close()
        self.producer = self._new_producer()

    def _new_producer(self) -> OutputProducer:
        context = self._context
        transactional_id = context.transactional_id if context.config.exactly_once else None
        return new_producer(context.config, context.name, transactional_id, context.patience)

    def close(self, *, leave_group: bool) -> None:
        # The producer first: whoever gets the tasks next waits for the end of an open transaction.
        closers: list[Callable[[], None]] = [
            self.producer.close,
            lambda: self.member.close(leave=leave_group),
            self.consumer.close,
        ]
        for close in closers:
            try:
                close()
            except Exception:
                log.warning("a client didn't close cleanly", exc_info=True)


def new_producer(
    config: StreamsConfig, name: str, transactional_id: str | None, patience: Patience
) -> OutputProducer:
    """A producer; with a transactional id it is initialised: it fences every earlier one of that id."""
    producer = OutputProducer(config.producer_settings(name, transactional_id))
    if transactional_id is not None:
        timeout_ms = min(10_000, config.task_timeout_ms)
        try:
            patience.retry(lambda: producer.init_transactions(timeout_ms), is_retriable)
        except KafkaException as exception:
            producer.close()
            raise KafkaUnreachableError(
                f"transactional id {transactional_id} can't be initialised: {error_of(exception)}; check that the "
                "transaction coordinator is up, and transaction_timeout_ms against the broker's "
                "transaction.max.timeout.ms"
            ) from exception
        except BaseException:
            producer.close()
            raise
    return producer
