"""Asks the consumer or the admin client for the partition counts of sinks' topics. Partitioners need these counts.

*Guarantees*: if Kafka doesn't answer at the moment, no record is lost: `TaskCorruptedError` is raised. So no exception
handler is asked about the record, and the tasks are rolled back until Kafka answers, for `task_timeout_ms` at most.
Other errors are `KafkaException`s, for example when a topic doesn't exist.
*Assumes*: partition counts don't change while the application runs; its leader watches them.
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
    """Make a function that asks the thread's consumer. Only the thread that owns the consumer may call it."""
    timeout_ms = context.config.request_timeout_ms
    return partial(_answered, lambda topic: clients.consumer.partitions_of(topic, timeout_ms))


def asked_of_admin(context: ThreadContext, _: ReadClients) -> Callable[[str], int]:
    """Make a function that asks the instance's admin client. Any thread may call it."""
    return partial(_answered, PartitionCounts(context.admin, context.config.request_timeout_ms).of)


def _answered(ask: Callable[[str], int], topic: str) -> int:
    try:
        return ask(topic)
    except KafkaException as error:
        if is_passing(error):
            raise TaskCorruptedError(f"the partition count of {topic} isn't known yet: {error}", ()) from error
        raise
