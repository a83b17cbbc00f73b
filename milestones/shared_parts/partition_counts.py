"""Partition counts of sinks' topics, for partitioners: asked of the consumer, or by the admin client.

*Guarantees*: a count that Kafka can't tell now costs no record: `TaskCorruptedError`, so that no exception handler is
asked about the record, and the tasks are rolled back until Kafka answers, at most for `task_timeout_ms`. Other errors,
such as that of a topic that doesn't exist, are `KafkaException`s.
*Assumes*: partition counts don't change under a running application, as its leader watches them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from milestones.common.errors import TaskCorruptedError
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.partition_counts import PartitionCounts

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import ReadClients


def asked_of_consumer(context: ThreadContext, clients: ReadClients) -> Callable[[str], int]:
    """A function that asks the thread's consumer: only for the thread that owns the consumer."""
    timeout_ms = context.config.request_timeout_ms
    return partial(_answered, lambda topic: clients.consumer.partitions_of(topic, timeout_ms))


def asked_of_admin(context: ThreadContext, _: ReadClients) -> Callable[[str], int]:
    """A function that has the instance's admin client asked: for any thread."""
    return partial(_answered, PartitionCounts(context.admin, context.config.request_timeout_ms).of)


def _answered(ask: Callable[[str], int], topic: str) -> int:
    try:
        return ask(topic)
    except KafkaException as error:
        if is_passing(error):
            raise TaskCorruptedError(f"the partition count of {topic} isn't known yet: {error}", ()) from error
        raise
