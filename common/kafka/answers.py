"""Reads brokers' answers about topics and offsets from the futures and objects of the admin client.

*Guarantees*: the functions change nothing. A failed answer is raised as `KafkaException`.
*Assumes*: a future that isn't done yet makes its reader wait.
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
    """Returns the partition count of each topic in the metadata."""
    found = metadata.topics.items()
    return {name: len(topic.partitions) for name, topic in found if topic.error is None and topic.partitions}


def described_in(answers: Mapping[str, Future[TopicDescription]]) -> dict[str, Described]:
    """Returns the descriptions of the topics. Topics that don't exist, or that the principal may not see, are left out.
    Raises the error of any other failed answer."""
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
    """Returns the settings that are in effect, by name."""
    return {name: str(entry.value) for name, entry in entries.items()}


def id_of(topic: TopicDescription) -> str | None:
    """Returns Kafka's id of the topic, or None if the brokers are too old to have topic ids."""
    id: Any = topic.topic_id
    return str(id) if id.get_most_significant_bits() or id.get_least_significant_bits() else None


def told(at: TopicPartition, future: Future[ListOffsetsResultInfo]) -> int:
    """Returns the offset in an answer. A search by time returns -1 when no record has that time or a later one.

    librdkafka answers with the offset -1001, and without an error, if the broker doesn't respond. Then this function
    raises `KafkaException`."""
    offset: int = future.result().offset
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"the leader of {at} doesn't tell its offsets"))
    return offset
