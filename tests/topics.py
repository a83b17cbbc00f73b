"""What tests on a broker that all share need: names of their own, commits that wait for a new coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from milestones.common.clock import SystemClock
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.retry import RetryPolicy
from milestones.testing import KafkaProbe

TIMEOUT_S = 60


def named(prefix: str) -> str:
    """A name that no other test has."""
    return f"{prefix}-{uuid4().hex[:8]}"


def new_topic(kafka: str, prefix: str = "topic", partitions: int = 1, **settings: str) -> str:
    """A topic of the test's own. Its broker knows it."""
    name = named(prefix)
    KafkaProbe(kafka).create({name: partitions}, settings)
    return name


def commit(consumer: Consumer, offsets: Sequence[TopicPartition]) -> None:
    """Commit these. A new broker's coordinator may still be about to come."""
    retry_policy = RetryPolicy(TIMEOUT_S * 1000, SystemClock())
    retry_policy.retry(lambda: consumer.commit(offsets=[*offsets], asynchronous=False), is_passing)
