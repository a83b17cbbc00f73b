"""`AssignedConsumer`: a consumer that is only ever assigned; `membership/` joins the group.

*Guarantees*: one owner thread, checked at each call. Records of `fetch` belong to partitions that are assigned now,
from the given positions on; a partition's end, control records included, is reported once reached.
*Assumes*: `enable.partition.eof` and `auto.offset.reset=error` in the settings.
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
"""The time-out of a question whose answer isn't awaited."""

GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
"""Codes of a partition that doesn't exist."""


@dataclass
class Fetched:
    """The result of one `fetch`. `ends`: the positions after the last record, control records included, of partitions
    whose ends were reached. `out_of_range`: partitions whose positions are gone from the log (truncated, retention).
    `gone`: partitions that don't exist any more. `refused`: partitions that this principal may not read, with the
    error that says what to do."""

    records: dict[TopicPartition, list[Message]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    out_of_range: list[TopicPartition] = field(default_factory=list)
    gone: list[TopicPartition] = field(default_factory=list)
    refused: dict[TopicPartition, MilestonesError] = field(default_factory=dict)

    def allowed(self) -> Fetched:
        """This result; raises the error of a partition that may not be read."""
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
        """Add partitions, each from its position (an offset, or `OFFSET_BEGINNING`). Those assigned are moved."""
        self._check_owner()
        known = {partition.topic for partition in self._assigned}
        self.unassign(self._assigned & positions.keys())
        if positions:
            self._consumer.incremental_assign([Position(t, p, offset) for (t, p), offset in positions.items()])
            self._assigned.update(positions)
            self._look_for_leaders({partition.topic for partition in positions} - known)

    def _look_for_leaders(self, topics: Iterable[str]) -> None:
        """Have the client look for the topics' leaders, which librdkafka does as it connects, and afterwards once a
        second only. The answer isn't awaited: only the client needs it."""
        for topic in topics:
            with suppress(KafkaException), self._waiting():
                self._consumer.list_topics(topic, timeout=NO_WAIT_S)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the assignment; others are passed over."""
        self._check_owner()
        leaving = self._assigned.intersection(partitions)
        # librdkafka keeps a partition paused beyond its assignment: the next one would fetch nothing.
        self.resume(leaving)
        if leaving:
            self._consumer.incremental_unassign([Position(*partition) for partition in leaving])
            self._assigned -= leaving

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching; the client throws prefetched records away, so pause rarely."""
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
        """Up to `limit` records, waiting at most `timeout_ms` for the first. `MilestonesError` on a lasting error that
        isn't about one partition."""
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
        # The client gives records in runs of one partition.
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
        """The records; what isn't one is noted in `fetched`."""
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
        """Errors of a partition that has left since are passed over: librdkafka may deliver them late."""
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
        """The end of the partition as of its last fetch, without asking; None before the first."""
        self._check_owner()
        _, high = self._consumer.get_watermark_offsets(Position(*partition), cached=True)
        return high if high >= 0 else None

    def partitions_of(self, topic: str, timeout_ms: int) -> int:
        """The number of partitions of a topic; `KafkaException` when there is no such topic. Asked once a topic."""
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
