"""What `milestones reset` asks of Kafka.

*Guarantees*: each call is complete or an error that says what to do.
*Assumes*: the principal may describe, alter and delete what belongs to the application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from milestones.common.config import StreamsConfig
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.consumers import client_log
from milestones.common.kafka.failures import UNREACHABLE, error_of
from milestones.common.records import TopicPartition

T = TypeVar("T")
TIMEOUT_S = 15.0

_SPECS = {
    "earliest": OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
    "latest": OffsetSpec.latest(),  # type: ignore[no-untyped-call]
}

_NO_GROUP = {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID}


class ResetCluster:
    """An admin client with the few calls of a reset."""

    def __init__(self, config: StreamsConfig) -> None:
        self._servers = config.bootstrap_servers
        self._admin = AdminClient(config.admin_settings(f"{config.application_id}-reset"), logger=client_log)

    def partitions(self) -> dict[str, int]:
        """Partition counts of all topics."""
        topics = self._told("topics can't be listed", lambda: self._admin.list_topics(timeout=TIMEOUT_S).topics)
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def members(self, group: str) -> list[str]:
        """Client ids of the group's members; none when there is no such group."""
        answer = self._admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group]
        try:
            return sorted(member.client_id for member in self._result("the group can't be described", answer).members)
        except MilestonesError as error:
            if _code(error) in _NO_GROUP:
                return []
            raise

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The group's committed offsets."""
        asked = [ConsumerGroupTopicPartitions(group)]
        answer = self._admin.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)[group]
        try:
            found = self._result("committed offsets can't be read", answer).topic_partitions or []
        except MilestonesError as error:
            if _code(error) in _NO_GROUP:
                return {}
            raise
        return {TopicPartition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def offsets(
        self, partitions: Iterable[TopicPartition], where: str, timestamp_ms: int | None
    ) -> dict[TopicPartition, int]:
        """Offsets to begin at; where no record is as new as the time, the end."""
        asked = list(partitions)
        if timestamp_ms is None:
            return self._list(asked, _SPECS[where])
        found = self._list(asked, OffsetSpec.for_timestamp(timestamp_ms))
        ends = self._list([p for p, offset in found.items() if offset < 0], _SPECS["latest"])
        return found | ends

    def _list(self, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        asked = {Position(*partition): spec for partition in partitions}
        answers = self._admin.list_offsets(asked, request_timeout=TIMEOUT_S)
        what = "offsets can't be listed"
        return {TopicPartition(at.topic, at.partition): self._result(what, a).offset for at, a in answers.items()}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets. Kafka refuses it while the group has members."""
        positions = [Position(topic, number, offset) for (topic, number), offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(group, positions)]
        answer = self._admin.alter_consumer_group_offsets(request, request_timeout=TIMEOUT_S)[group]
        for position in self._result(
            "the group's offsets can't be set; is an instance running?", answer
        ).topic_partitions:
            if position.error is not None:
                raise MilestonesError(
                    f"the offset of {position.topic}-{position.partition} can't be set: {position.error}"
                )

    def delete(self, topics: list[str]) -> None:
        """Delete topics; one that is gone already is fine."""
        answers = self._admin.delete_topics(topics, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
        for topic, answer in answers.items():
            try:
                self._result(f"topic {topic} can't be deleted", answer)
            except MilestonesError as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

    def _result(self, what: str, answer: Future[T]) -> T:
        return self._told(what, answer.result)

    def _told(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except KafkaException as exception:
            error = error_of(exception)
            if error is not None and error.code() in UNREACHABLE:
                raise KafkaUnreachableError(
                    f"{what}: no broker of bootstrap_servers={self._servers!r} answered ({error.str()}); "
                    "check the address and that the brokers are up"
                ) from exception
            raise MilestonesError(f"{what}: {error}") from exception


def _code(error: MilestonesError) -> int | None:
    cause = error_of(error.__cause__) if error.__cause__ is not None else None
    return None if cause is None else int(cause.code())
