"""The one way into Kafka: a producer that sends tasks' outputs, with or without transactions.

*Guarantees*: one owner thread, checked once per call; outputs of one partition keep their order; no output is lost
silently: under at least once each one carries a report, under exactly once a lost one fails the transaction.
*Assumes*: `partitioner=murmur2_random` in the settings, so that partition -1 means Kafka's own partitioning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from milestones.common.kafka.consumers import Owned, client_log
from milestones.common.records import OffsetAndMetadata, Output, TaskId, TopicPartition

log = logging.getLogger(__name__)

Report = Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True)
class Refused:
    """An output that Kafka didn't take, as its delivery report tells."""

    task: TaskId
    error: KafkaError
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None


class OutputProducer(Owned):
    """A confluent-kafka producer for the outputs of tasks.

    `settings` with a `transactional.id` make it transactional. `acknowledged` holds, by changelog partition, the
    offset after the last record that Kafka acknowledged; `refused` the outputs it didn't take. Both are filled by
    `poll` and `flush`, in the owner's thread.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._producer = Producer(dict(settings), logger=client_log)
        self.transactional = "transactional.id" in settings
        self.in_transaction = False
        self.acknowledged: dict[TopicPartition, int] = {}
        self.refused: list[Refused] = []
        self._reports: dict[TaskId, tuple[Report, Report]] = {}

    def send(self, task: TaskId, outputs: list[Output], changelogs: Collection[str]) -> None:
        """Hand `outputs` to the client, in order; begins the transaction when there is none. Waits while the client's
        queue is full. `KafkaException` when an output can't be sent at all (too large, say): the rest isn't sent."""
        self._check_owner()
        self.begin()
        produce = self._producer.produce
        acknowledge, refuse = self._reports_of(task)
        every = None if self.transactional else refuse
        last = _last_of_changelogs(outputs, changelogs)
        for index, (topic, partition, key, value, timestamp, headers, _) in enumerate(outputs):
            on_delivery = acknowledge if index in last else every
            while True:
                try:
                    produce(topic, value, key, partition, on_delivery, None, timestamp, headers)  # type: ignore[arg-type]
                    break
                except BufferError:
                    self._producer.poll(0.05)
                except KafkaException as exception:
                    self.refused.append(Refused(task, exception.args[0], topic, partition, key, value))
                    raise

    def _reports_of(self, task: TaskId) -> tuple[Report, Report]:
        """Two delivery reports of a task: one that also notes the offset, for a changelog's last record, and one for
        all others. A transaction fails as a whole when a record is lost, so there the others need none."""
        if task not in self._reports:

            def refuse(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    self.refused.append(_refused(task, error, message))

            def acknowledge(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    at = TopicPartition(message.topic() or "", message.partition() or 0)
                    self.acknowledged[at] = (message.offset() or 0) + 1
                else:
                    refuse(error, message)

            self._reports[task] = acknowledge, refuse
        return self._reports[task]

    def poll(self) -> None:
        """Serve delivery reports. Raises the fatal error of a dead producer."""
        self._check_owner()
        self._producer.poll(0)

    def flush(self, timeout_ms: int) -> None:
        """Wait until all that was sent is acknowledged or refused. A passing `KafkaException` when time is up."""
        self._check_owner()
        try:
            left = self._producer.flush(timeout_ms / 1000)
        except SystemError as exception:
            # A fenced producer raises this from a flush with reports; the next transaction call names the cause.
            log.debug("flush: %s", exception)
            left = 0
        if left:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} records weren't acknowledged in time"))

    def init_transactions(self, timeout_ms: int) -> None:
        """Fence every earlier producer of this transactional id; what it left open is aborted."""
        self._check_owner()
        self._producer.init_transactions(timeout_ms / 1000)

    def begin(self) -> None:
        """Open a transaction, unless one is open or the producer has none."""
        self._check_owner()
        if self.transactional and not self.in_transaction:
            self._producer.begin_transaction()
            self.in_transaction = True

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        """Put the offsets into the transaction, for the member and generation that `group_metadata` names."""
        self._check_owner()
        positions = [Position(t, p, at.offset, at.metadata) for (t, p), at in offsets.items()]
        self._producer.send_offsets_to_transaction(positions, group_metadata, timeout_ms / 1000)

    def commit(self, timeout_ms: int) -> None:
        self._check_owner()
        self._producer.commit_transaction(timeout_ms / 1000)
        self.in_transaction = False

    def abort(self, timeout_ms: int) -> None:
        """End the open transaction, if there is one; none of its records will be read."""
        self._check_owner()
        if self.in_transaction:
            self._producer.abort_transaction(timeout_ms / 1000)
            self.in_transaction = False
        self.acknowledged.clear()

    def close(self) -> None:
        """Drop what wasn't sent and let the client go."""
        self._check_owner()
        self._producer.purge()
        self._producer.close()


def _refused(task: TaskId, error: KafkaError, message: Message) -> Refused:
    topic, partition = message.topic() or "", message.partition()
    return Refused(task, error, topic, -1 if partition is None else partition, message.key(), message.value())


def _last_of_changelogs(outputs: list[Output], changelogs: Collection[str]) -> set[int]:
    """Indices of the last output to each of `changelogs` (all of one task, so one partition each)."""
    missing, last = set(changelogs), set()
    for index in range(len(outputs) - 1, -1, -1):
        if not missing:
            break
        topic = outputs[index][0]
        if topic in missing:
            missing.discard(topic)
            last.add(index)
    return last
