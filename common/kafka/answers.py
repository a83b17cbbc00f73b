"""The answers of brokers about topics and offsets, read from the futures and objects of the admin client.

*Guarantees*: pure functions of an answer; a failed answer is raised as `KafkaException`.
*Assumes*: the futures are done, where they aren't waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ClusterMetadata,
    ConfigEntry,
    ListOffsetsResultInfo,
    TopicDescription,
)

from milestones.common.kafka.failures import error_of
from milestones.common.kafka.topic_metadata import UNSEEN, Described
from milestones.common.records import TopicPartition


def counts_in(metadata: ClusterMetadata) -> dict[str, int]:
    """The partition counts of all topics."""
    found = metadata.topics.items()
    return {name: len(topic.partitions) for name, topic in found if topic.error is None and topic.partitions}


def described_in(answers: Mapping[str, Future[TopicDescription]]) -> dict[str, Described]:
    """The descriptions among the answers, without topics that don't exist or that the principal may not see. Other
    errors are raised."""
    found: dict[str, Described] = {}
    for name, future in answers.items():
        try:
            told = future.result()
        except KafkaException as exception:
            error = error_of(exception)
            if error is None or error.code() not in UNSEEN:
                raise
        else:
            found[name] = Described(len(told.partitions), id_of(told))
    return found


def settings_in(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """The settings in effect."""
    return {name: str(entry.value) for name, entry in entries.items()}


def id_of(topic: TopicDescription) -> str | None:
    """Kafka's id of the topic; None where brokers give none."""
    id: Any = topic.topic_id
    return str(id) if id.get_most_significant_bits() or id.get_least_significant_bits() else None


def told(at: TopicPartition, future: Future[ListOffsetsResultInfo]) -> int:
    """The offset in an answer; -1 when no record is as late as asked for. For a broker that stands still librdkafka
    gives offset -1001, without an error: that is a `KafkaException`."""
    offset: int = future.result().offset
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"the leader of {at} doesn't tell its offsets"))
    return offset
