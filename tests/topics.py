"""What a test needs of a broker at once: it says "made" before it knows all of it."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from milestones.common.clock import SystemClock
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.retry import RetryPolicy

TIMEOUT_S = 60


def made(admin: AdminClient, *topics: NewTopic) -> None:
    """Create topics, and wait until the broker knows them, with a leader of each partition."""
    for future in admin.create_topics([*topics]).values():
        future.result(TIMEOUT_S)
    for topic in topics:
        while not _known(admin, topic.topic):
            pass


def _known(admin: AdminClient, topic: str) -> bool:
    found = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    return found.error is None and all(partition.error is None for partition in found.partitions.values())


def commit(consumer: Consumer, offsets: Sequence[TopicPartition]) -> None:
    """Commit these. A new broker's coordinator may still be about to come."""
    retry_policy = RetryPolicy(TIMEOUT_S * 1000, SystemClock())
    retry_policy.retry(lambda: consumer.commit(offsets=[*offsets], asynchronous=False), is_passing)
