"""`ResetCluster`: makes the requests of `milestones reset` to Kafka.

*Guarantees*: each call succeeds completely, or raises an error that says what to do.
*Assumes*: the principal may describe, alter and delete the application's group and internal topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.errors import MilestonesError
from milestones.common.kafka.clients import GIVEN_UP_S, client_log, text_of
from milestones.common.kafka.failures import UNREACHABLE, error_of
from milestones.common.kafka.groups import GroupReader
from milestones.common.kafka.login import Login
from milestones.common.kafka.retry import RetryPolicy
from milestones.common.kafka.topics import EARLIEST, LATEST, Cluster
from milestones.common.records import OffsetAndMetadata, TopicPartition

T = TypeVar("T")
TIMEOUT_S = 15.0

# The client's log lines about lost connections aren't shown, because the error contains the reason.
client_log.addHandler(logging.NullHandler())

_NO_GROUP = {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID}
_TOO_EARLY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}


class ResetCluster(Cluster):
    """A `Cluster` with additional requests that only a reset needs."""

    def __init__(self, config: StreamsConfig) -> None:
        settings = config.admin_settings(f"{config.application_id}-reset")
        super().__init__(settings, request_timeout_ms=int(TIMEOUT_S * 1000), login=Login(settings))
        self._retry_policy = RetryPolicy(int(TIMEOUT_S * 1000), SystemClock())

    def partitions(self) -> dict[str, int]:
        """Returns the partition counts of all topics."""
        return self._told("topics can't be listed", self.partition_counts)

    def groups(self) -> list[str]:
        """Returns the ids of all groups that this principal may see."""

        def ask() -> list[str]:
            answer = self._admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
            if answer.errors:
                raise answer.errors[0]
            return sorted(group.group_id for group in answer.valid)

        return self._told("groups can't be listed", ask)

    def members(self, group: str) -> list[str]:
        """Returns the client ids of the group's members, or an empty list if the group doesn't exist."""

        def ask() -> list[str]:
            answer = self._admin.describe_consumer_groups([group], request_timeout=GIVEN_UP_S)[group]
            return sorted(member.client_id for member in _answered(answer).members)

        try:
            return self._told("the group can't be described", ask)
        except MilestonesError as error:
            if _code(error.__cause__) in _NO_GROUP:
                return []
            raise

    def offsets(
        self, partitions: Iterable[TopicPartition], where: str, timestamp_ms: int | None
    ) -> dict[TopicPartition, int]:
        """Returns the offsets at which the partitions begin anew: `where` is `latest` or the beginning. With
        `timestamp_ms`, a partition begins at its first record that isn't older, or at its end if all are older."""
        asked = list(partitions)
        if timestamp_ms is None:
            return self._list(asked, LATEST if where == "latest" else EARLIEST)
        found = self._list(asked, OffsetSpec.for_timestamp(timestamp_ms))
        ends = self._list([p for p, offset in found.items() if offset < 0], LATEST)
        return found | ends

    def _list(self, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        return self._told("offsets can't be listed", lambda: self._offsets(partitions, spec))

    def committed_with_metadata(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Wait until no open transaction contains offsets of these partitions. Returns the group's committed offsets
        with their metadata. Partitions without a committed offset are left out."""
        with closing(GroupReader(self._settings, group, timeout_ms=int(TIMEOUT_S * 1000))) as reader:
            return reader.stable(partitions)

    def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set the group's offsets. Kafka refuses this while the group has members."""
        positions = [Position(topic, number, at.offset, at.metadata) for (topic, number), at in offsets.items()]

        def ask() -> None:
            request = [ConsumerGroupTopicPartitions(group, positions)]
            answer = self._admin.alter_consumer_group_offsets(request, request_timeout=GIVEN_UP_S)[group]
            # librdkafka doesn't raise the error of a single partition. It is in the partition's entry of the answer.
            failed = [at.error for at in _answered(answer).topic_partitions or [] if at.error is not None]
            if failed:
                raise KafkaException(failed[0])

        self._told("the group's offsets can't be set; is an instance running?", ask)

    def delete(self, topics: list[str]) -> None:
        """Delete topics. A topic that no longer exists is no error."""

        def ask(topic: str) -> None:
            answer = self._admin.delete_topics([topic], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
            answer[topic].result()

        for topic in topics:
            try:
                self._told(f"topic {topic} can't be deleted", partial(ask, topic))
            except MilestonesError as error:
                if _code(error.__cause__) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

    def _told(self, what: str, ask: Callable[[], T]) -> T:
        """Call `ask`, and return its answer. The call is repeated while a coordinator or leader moves. Raises
        `MilestonesError`, whose text begins with `what`, or `KafkaUnreachableError`."""
        try:
            return self._retry_policy.retry(ask, lambda exception: _code(exception) in _TOO_EARLY)
        except KafkaException as exception:
            if _code(exception) in UNREACHABLE:
                raise self._unreachable(exception) from exception
            raise MilestonesError(f"{what}: {text_of(exception)}") from exception


def _answered(future: Future[T]) -> T:
    """Wait for a coordinator's answer, and return it. Raises the coordinator's error, or `KafkaException` after
    `TIMEOUT_S`."""
    try:
        return future.result(TIMEOUT_S)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the coordinator doesn't answer")) from None


def _code(exception: BaseException | None) -> int | None:
    error = None if exception is None else error_of(exception)
    return None if error is None else int(error.code())
