"""`AssignedConsumer`: a consumer that reads the partitions its owner assigns. `membership/` joins the group.

*Guarantees*: one owner thread, checked at each call. `fetch` returns only records of partitions that are assigned now,
beginning at the positions given to `assign`. When a partition's end is reached, control records included, `fetch`
reports the end.
*Assumes*: the settings contain `enable.partition.eof` and `auto.offset.reset=error`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from milestones.common.config.clients import CONSUMER_FIXED
from milestones.common.errors import MilestonesError
from milestones.common.kafka.clients import Owned, client_log
from milestones.common.records import TopicPartition

log: Final = logging.getLogger(__name__)

NO_WAIT_S = 0.001
"""The time-out of a question whose answer the caller doesn't need."""

GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
"""Error codes of a partition that doesn't exist."""


@dataclass
class Fetched:
    """The result of one `fetch`. `ends`: the end offset of each partition whose end was reached. Control records are
    counted. `out_of_range`: partitions whose position is no longer in the log, which was truncated or has expired.
    `gone`: partitions that don't exist any more. `refused`: partitions that this principal may not read, each with an
    error that says what to do."""

    records: dict[TopicPartition, list[Message]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    out_of_range: list[TopicPartition] = field(default_factory=list)
    gone: list[TopicPartition] = field(default_factory=list)
    refused: dict[TopicPartition, MilestonesError] = field(default_factory=dict)

    def allowed(self) -> Fetched:
        """Returns this result. Raises the error in `refused` if a partition may not be read."""
        for error in self.refused.values():
            raise error
        return self


class AssignedConsumer(Owned):
    """A consumer whose owner assigns partitions and positions."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._consumer = Consumer({**settings, **CONSUMER_FIXED}, logger=client_log)
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._partition_counts: dict[str, int] = {}

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assign more partitions, each from its position: an offset, or `OFFSET_BEGINNING`. A partition that is already
        assigned continues from the new position."""
        self._check_owner()
        known = {partition.topic for partition in self._assigned}
        self.unassign(self._assigned & positions.keys())
        if positions:
            self._consumer.incremental_assign([Position(t, p, offset) for (t, p), offset in positions.items()])
            self._assigned.update(positions)
            self._look_for_leaders({partition.topic for partition in positions} - known)

    def _look_for_leaders(self, topics: Iterable[str]) -> None:
        """Have the client look for the leaders of the topics now. By itself librdkafka does so when it connects, and
        afterwards only once a second. Only the client needs the answer, so this method doesn't wait for it."""
        for topic in topics:
            with suppress(KafkaException), self._waiting():
                self._consumer.list_topics(topic, timeout=NO_WAIT_S)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the assignment. Partitions that aren't assigned are ignored."""
        self._check_owner()
        leaving = self._assigned.intersection(partitions)
        # librdkafka keeps a partition paused after its removal. If it were assigned later, nothing would be fetched.
        self.resume(leaving)
        if leaving:
            self._consumer.incremental_unassign([Position(*partition) for partition in leaving])
            self._assigned -= leaving

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching from these partitions. The client drops their prefetched records, so pausing is expensive."""
        self._check_owner()
        stopping = self._assigned.intersection(partitions) - self._paused
        if stopping:
            self._consumer.pause([Position(*partition) for partition in stopping])
            self._paused |= stopping

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_owner()
        starting = self._paused.intersection(partitions)
        if starting:
            self._consumer.resume([Position(*partition) for partition in starting])
            self._paused -= starting

    def fetch(self, limit: int, timeout_ms: int) -> Fetched:
        """Wait at most `timeout_ms` for a first record. Returns up to `limit` records. Raises `MilestonesError` for a
        lasting error that isn't about one partition."""
        self._check_owner()
        messages: list[Message] = []
        if timeout_ms > 0:
            with self._waiting():
                messages = self._consumer.consume(1, timeout_ms / 1000)
        if len(messages) < limit:
            messages += self._consumer.consume(limit - len(messages), 0)
        fetched = Fetched()
        records = fetched.records
        if [error for message in messages if (error := message.error()) is not None]:
            messages = self._without_errors(messages, fetched)
        # The client returns records of the same partition one after the other, so they can be added run by run.
        topics, partitions = [one.topic() for one in messages], [one.partition() for one in messages]
        end = 0
        for place, run in groupby(zip(topics, partitions, strict=True)):
            begin, end = end, end + len(list(run))
            partition = TopicPartition(*place)  # type: ignore[arg-type]  # a record has both
            if partition in records:
                records[partition] += messages[begin:end]
            elif partition in self._assigned:
                records[partition] = messages[begin:end]
        for partition in fetched.ends.keys() & records.keys():
            if fetched.ends[partition] <= (records[partition][-1].offset() or 0):
                del fetched.ends[partition]
        return fetched

    def _without_errors(self, messages: Iterable[Message], fetched: Fetched) -> list[Message]:
        """Returns the messages that are records. Messages that are errors are noted in `fetched`."""
        records: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            else:
                at: tuple[Any, Any] = (message.topic(), message.partition())
                self._note(error, TopicPartition(*at), message, fetched)
        return records

    def _note(self, error: KafkaError, partition: TopicPartition, message: Message, fetched: Fetched) -> None:
        """Note an error in `fetched`, or raise it. An error of a partition that isn't assigned any more is ignored,
        because librdkafka may deliver it late."""
        code, ours = error.code(), partition in self._assigned
        if code == KafkaError._PARTITION_EOF:
            if ours:
                fetched.ends[partition] = message.offset() or 0
        elif ours and code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            fetched.out_of_range.append(partition)
        elif ours and code in GONE:
            fetched.gone.append(partition)
        elif error.fatal() or code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION):
            lasting = MilestonesError(
                f"the consumer can't read {partition if ours else 'its partitions'}: {error}; grant this principal "
                "READ on the topic, and check its credentials"
            )
            if not ours or error.fatal():
                raise lasting
            fetched.refused[partition] = lasting
        else:
            log.debug("consumer: %s (%s); librdkafka recovers by itself", error.str(), partition)

    def known_end(self, partition: TopicPartition) -> int | None:
        """Returns the partition's end offset that the last fetch has reported. Kafka isn't asked. Returns None before
        the first fetch."""
        self._check_owner()
        _, high = self._consumer.get_watermark_offsets(Position(*partition), cached=True)
        return high if high >= 0 else None

    def partitions_of(self, topic: str, timeout_ms: int) -> int:
        """Returns the number of partitions of a topic. Kafka is asked once per topic. Raises `KafkaException` if the
        topic doesn't exist."""
        self._check_owner()
        if topic not in self._partition_counts:
            with self._waiting():
                metadata = self._consumer.list_topics(topic, timeout=timeout_ms / 1000).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            self._partition_counts[topic] = len(metadata.partitions)
        return self._partition_counts[topic]

    def close(self) -> None:
        self._check_owner()
        self._consumer.close()
