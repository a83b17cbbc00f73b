"""`ThreadClients`: every thread that polls has Kafka clients of its own.

*Guarantees*: the thread that made a `ThreadClients` owns its clients, and closes them. The thread that asked for a
restore consumer owns this consumer, and its `ChangelogReader` closes it. If a client can't be made, the others are
closed.
*Assumes*: no other thread has the same transactional id (application, process id, thread).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

from confluent_kafka import KafkaException

from milestones.common.clock import Clock
from milestones.common.errors import KafkaUnreachableError
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.kafka.failures import caught, error_of, is_retriable, refuse_forbidden_id
from milestones.common.kafka.leader import TopologyLeader
from milestones.common.kafka.membership import GroupMember
from milestones.common.kafka.producer import OutputProducer
from milestones.common.kafka.retry import RetryPolicy
from milestones.common.metrics import PUBLISH_INTERVAL_MS, HeartbeatMetrics
from milestones.common.steps import Steps, caught_in_steps, to_the_end
from milestones.instance.context import ThreadContext
from milestones.parts import ClientFactory
from milestones.shared_parts.in_transaction import CALL_MS

LEAVE_MS = 200
"""The longest wait for the close of a replaced producer. The close of a fenced producer may take a second."""

log: Final = logging.getLogger(__name__)


class ThreadClientFactory:
    """Makes the Kafka clients of one stream thread, with the thread's name, transactional id and static id."""

    def __init__(self, context: ThreadContext) -> None:
        self._context = context

    def consumer(self) -> AssignedConsumer:
        return AssignedConsumer(self._context.config.consumer_settings(self._context.name))

    def restore_consumer(self) -> AssignedConsumer:
        return AssignedConsumer(self._context.config.restore_consumer_settings(self._context.name))

    def producer(self, *, isolation: BatchIsolation | None = None) -> OutputProducer:
        context, config = self._context, self._context.config
        transactional_id = context.transactional_id if config.exactly_once else None
        settings = config.producer_settings(context.name, transactional_id)
        return OutputProducer(settings, context.clock, admin=context.admin, isolation=isolation)

    def member(self, tell: Callable[[int, int], None]) -> GroupMember:
        context, config = self._context, self._context.config
        leader = TopologyLeader(config, context.application.subtopologies, context.name, context.admin)
        settings = config.member_settings(context.name, context.number)
        return GroupMember(settings, leader, context.clock, tell=tell)


class ThreadClients:
    """Owns one thread's consumer, producer and group member. Also makes restore consumers, for threads that restore."""

    def __init__(self, context: ThreadContext, factory: ClientFactory) -> None:
        self._context, self._factory = context, factory
        self._transactional_id = context.transactional_id if context.config.exactly_once else None
        with ExitStack() as unfinished:
            self.consumer: AssignedConsumer = factory.consumer()
            unfinished.callback(self.consumer.close)
            self.producer: OutputProducer = factory.producer()
            unfinished.callback(self.producer.close)
            to_the_end(self._initialise(context.config.task_timeout_ms))
            self._heartbeats = context.metrics.add(HeartbeatMetrics, client_id=f"{context.name}-consumer")
            unfinished.callback(context.metrics.remove, self._heartbeats)
            self.member: GroupMember = factory.member(partial(publish_silence, self._heartbeats))
            unfinished.pop_all()

    def new_restore_consumer(self) -> AssignedConsumer:
        return self._factory.restore_consumer()

    def _initialise(self, within_ms: int) -> Steps[None]:
        context = self._context
        if self._transactional_id is not None:
            yield from initialise(self.producer, self._transactional_id, context.clock, context.retry_policy, within_ms)

    def renew_producer(self, within_ms: int | None = None, *, isolation: BatchIsolation | None = None) -> Steps[None]:
        old = self.producer
        failed = caught(lambda: self._make_producer(isolation), KafkaException)
        if failed is not None:
            if old.transactional:
                # The old producer may be one that mustn't begin another transaction. Once closed, it can't.
                yield from old.closing(LEAVE_MS)
            raise KafkaUnreachableError(
                f"no new producer can be made: {error_of(failed)}; check the limits on threads and open files"
            ) from failed
        if not old.transactional:
            # Without transactions no fencing stops the old producer, so its close is awaited.
            yield from old.closing()
            return
        most_ms = self._context.config.task_timeout_ms if within_ms is None else within_ms
        try:
            unready = yield from caught_in_steps(self._initialise(most_ms), KafkaUnreachableError)
        except BaseException:  # also when the caller abandons the steps
            old.close(LEAVE_MS)
            raise
        # By now the old producer is fenced, unless no broker answers. So its close has nothing left to wait for.
        yield from old.closing(LEAVE_MS)
        if unready is not None:
            raise unready

    def _make_producer(self, isolation: BatchIsolation | None) -> None:
        self.producer = self._factory.producer(isolation=isolation)

    def close(self, *, leave_group: bool) -> None:
        # The producer first: the tasks' next owners wait for the end of an open transaction.
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
        self._context.metrics.remove(self._heartbeats)


def publish_silence(heartbeats: HeartbeatMetrics, now_ms: int, silent_ms: int) -> None:
    """Publish, about once a second, how long a member's coordinator has been silent. The first call publishes in any
    case. The membership thread calls it."""
    if now_ms - heartbeats.published.at_ms >= PUBLISH_INTERVAL_MS or not heartbeats.published.values:
        heartbeats.last_heartbeat_seconds_ago.value = silent_ms // 1000
        heartbeats.publish(now_ms)


def initialise(
    producer: OutputProducer, transactional_id: str, clock: Clock, retry_policy: RetryPolicy, within_ms: int
) -> Steps[None]:
    """Initialise the producer's transactions, in steps. The call fences every earlier producer of the same id. Raises
    `KafkaUnreachableError` when it takes too long, `SecurityError` when the user lacks the right."""
    deadline_ms = clock.monotonic_ms() + within_ms

    def begin() -> None:
        producer.begin_init_transactions(min(CALL_MS, max(1, deadline_ms - clock.monotonic_ms())))

    try:
        yield from retry_policy.steps(begin, producer.returned, is_retriable, within_ms)
    except KafkaException as exception:
        refuse_forbidden_id(transactional_id, exception)
        raise KafkaUnreachableError(
            f"transactional id {transactional_id} can't be initialised: {error_of(exception)}; check that the "
            "transaction coordinator is up, and transaction_timeout_ms against the broker's "
            "transaction.max.timeout.ms"
        ) from exception
