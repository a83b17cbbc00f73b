"""`KafkaProbe` lets a test write, read and inspect a running Kafka: topics, records, ends, committed offsets.

    probe = KafkaProbe(broker.bootstrap_servers)
    probe.create({"in": 2, "out": 1})
    probe.write("in", "a", "b", key="k")
    values = [record.value for record in probe.read("out")]

*Guarantees*: a read returns all records up to the partitions' read-uncommitted ends, without control records, or raises
an error. Nothing is cached. A topic that doesn't exist is an error, never a topic without partitions.
*Assumes*: one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from milestones.common.kafka.answers import described_in
from milestones.common.kafka.failures import error_of, is_passing
from milestones.common.records import TopicPartition
from milestones.common.testing.waiting import DeadlineError, NotYet, until

T = TypeVar("T")

CALL_S, ASK_S = 15.0, 20.0
"""The longest duration of one call, and the time for which a failed call is repeated, in seconds."""
STABLE_S = 5.0
"""The time (s) to wait for committed offsets while a transaction on them is pending."""
READ_S = 60.0
"""The longest duration of a read to the end, in seconds."""


class KafkaRecord(NamedTuple):
    """A record stored in Kafka. `timestamp`: ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def place(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset} (key {self.key!r:.60}, value {self.value!r:.60})"


class KafkaProbe:
    """Creates topics, writes and reads records, and reads ends and committed offsets."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin: AdminClient = self._new_client()

    def _new_client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _ask(self, question: Callable[[AdminClient], T]) -> T:
        """Return the answer to `question`. After each failure, a new client asks. A broker that was stopped for a while
        doesn't know its own leaders at first. An old client of librdkafka may never learn of the leaders, while a new
        client gets an answer immediately."""
        answers, failures = list[T](), list[Exception]()

        def answered() -> object:
            try:
                answers.append(question(self.admin))
            except (KafkaException, TimeoutError) as error:
                self.admin = self._new_client()
                failures.append(error)
                if isinstance(error, KafkaException) and not is_passing(error):
                    raise
                return NotYet(str(error))
            return True

        try:
            until(answered, "Kafka answers", ASK_S)
        except DeadlineError:
            raise failures[-1] from None
        return answers[0]

    def close(self) -> None:
        """Close the client and its threads. The probe can't be used after that."""
        del self.admin

    def create(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Create topics with these partition counts. Returns when each partition has a leader. Kafka deletes no record
        by its age, as a test chooses its own timestamps."""
        settings = {"retention.ms": "-1", **(config or {})}
        new = [NewTopic(name, count, 1, config=settings) for name, count in topics.items()]
        for future in self.admin.create_topics(new, request_timeout=CALL_S).values():
            future.result(CALL_S)
        self.await_known(topics)

    def make_anew(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Delete topics, and create new ones of the same names as `create` does. This takes less time than passes
        between two checks by a running application. Records that are written afterwards are in the new topics: this
        method waits until the broker knows them. (A broker that doesn't know of the deletion yet would append records
        to the old topics, and delete them with these.)
        """
        former = self._ids(topics)
        for future in self.admin.delete_topics(list(topics), request_timeout=CALL_S).values():
            future.result(CALL_S)

        def made() -> object:
            try:
                self.create(topics, config)
            except KafkaException as exception:
                error = error_of(exception)
                # Kafka answers this while the deletion isn't over. A request that timed out may have created the topic.
                if error is None or not (error.code() == KafkaError.TOPIC_ALREADY_EXISTS or is_passing(exception)):
                    raise
                return NotYet(str(error))
            return True

        until(made, f"{', '.join(topics)} is made again", ASK_S)
        until(lambda: not former & self._ids(topics), f"the broker knows the new {', '.join(topics)}", ASK_S)
        self.await_known(topics)

    def _ids(self, topics: Iterable[str]) -> set[str | None]:
        asked = TopicCollection(list(topics))
        found = self._ask(lambda admin: described_in(admin.describe_topics(asked, request_timeout=CALL_S)))
        return {told.id for told in found.values()}

    def await_known(self, topics: Mapping[str, int]) -> None:
        """Wait until the broker knows these partitions of topics. Kafka's controller reports a topic as created before
        the broker knows of it. A broker that is still deleting other topics learns of new ones up to a second later."""

        def known() -> object:
            found = self.topics()
            lacking = {name: found.get(name, 0) for name, count in topics.items() if found.get(name, 0) < count}
            return NotYet(f"partitions with a leader: {lacking}") if lacking else True

        until(known, f"the broker knows {', '.join(topics)}", CALL_S)

    def topics(self) -> dict[str, int]:
        """Return the partition counts of all topics. Only partitions with a leader count."""
        found = self._ask(lambda admin: admin.list_topics(timeout=CALL_S).topics)
        return {name: sum(one.leader >= 0 for one in topic.partitions.values()) for name, topic in found.items()}

    def places(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of these topics. Raises `KafkaException` if the broker doesn't know one of the topics:
        a check of no partitions would always succeed."""
        counts = self.topics()
        places = []
        for topic in topics:
            if not counts.get(topic):
                unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
                raise KafkaException(KafkaError(unknown, f"the broker knows no topic {topic}"))
            places += [TopicPartition(topic, number) for number in range(counts[topic])]
        return places

    def write(
        self, topic: str, *values: str | bytes | None, key: str | bytes | None = None, partition: int = -1,
        timestamp: int = 0, transactional_id: str | None = None, commit: bool = True,
    ) -> None:
        """Write records, and wait until Kafka has stored them. Partition -1: the key chooses the partition. Timestamp
        0: now. With a `transactional_id` the records are one transaction, which is committed or aborted."""
        refused = list[KafkaError]()
        transaction = {} if transactional_id is None else {"transactional.id": transactional_id}
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **transaction})
        if transaction:
            producer.init_transactions(READ_S)
            producer.begin_transaction()
        for value in values:
            producer.produce(
                topic, value, key, partition, timestamp=timestamp,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )  # fmt: skip
        left = producer.flush(READ_S)
        if left or refused:
            raise AssertionError(f"records of {topic} didn't reach Kafka: {left} waiting, {refused[:3]}")
        if transaction:
            (producer.commit_transaction if commit else producer.abort_transaction)(READ_S)

    def ends(self, places: Collection[TopicPartition], *, stable: bool = False) -> dict[TopicPartition, int]:
        """Return the end offsets, including uncommitted and control records. With `stable`, return the last stable
        offsets."""
        if not places:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {Position(*place): latest for place in places}

        def told(admin: AdminClient) -> dict[TopicPartition, int]:
            futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=CALL_S)
            return {TopicPartition(at.topic, at.partition): _told(one.result(CALL_S)) for at, one in futures.items()}

        return self._ask(told)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the group's stable committed offsets. Raises `KafkaException` while a transaction on them is pending.

        A consumer that never joins the group asks for them. The admin client's own call crashes the process while the
        group's coordinator is being found (confluent-kafka-python's issue 1982).
        """
        counts = {name: count for name, count in self.topics().items() if name[:2] != "__"}
        asked = [Position(name, number) for name, count in counts.items() for number in range(count)]
        if not asked:
            return {}
        # With read_committed, only stable offsets are returned.
        consumer = Consumer({
            "bootstrap.servers": self.bootstrap_servers, "group.id": group, "isolation.level": "read_committed",
            "log_level": 0,
        })  # fmt: skip
        try:
            found = consumer.committed(asked, STABLE_S)
        finally:
            consumer.close()
        for at in found:
            if at.error is not None:
                raise KafkaException(at.error)
        return {TopicPartition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def read(
        self, *topics: str, timeout_s: float = READ_S, uncommitted: bool = False, stable: bool = False
    ) -> list[KafkaRecord]:
        """Return all committed records of these topics, by topic and partition, in order. With `uncommitted`,
        uncommitted records are returned, too. With `stable`, reading ends before the first open transaction, and
        doesn't wait for its end."""
        with self.tail(*topics, uncommitted=uncommitted) as tail:
            tail.to_the_end(timeout_s, stable=stable)
            return sorted(tail.rows, key=lambda row: (row.topic, row.partition, row.offset))

    def tail(self, *topics: str, uncommitted: bool = False) -> TopicTail:
        """Return a reader of these topics' records, from their beginning on, as they come."""
        return TopicTail(self, self.places(topics), uncommitted=uncommitted)


class TopicTail(AbstractContextManager["TopicTail"]):
    """Reads committed records of partitions as they come, each partition from its beginning or from an offset. `rows`:
    all records so far."""

    def __init__(
        self, probe: KafkaProbe, places: Iterable[TopicPartition],
        from_offsets: Mapping[TopicPartition, int] | None = None, *, uncommitted: bool = False,
    ) -> None:
        self._probe, self._places = probe, [*places]
        self._reached = dict.fromkeys(self._places, 0)
        self.rows: list[KafkaRecord] = []
        self._consumer = Consumer({
            "bootstrap.servers": probe.bootstrap_servers, "group.id": "kafka-probe-never-committed",
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed", "enable.auto.commit": False,
            "auto.offset.reset": "error", "enable.partition.eof": True, "fetch.queue.backoff.ms": 10,
            "fetch.wait.max.ms": 50, "log_level": 0,
        })  # fmt: skip
        starts = from_offsets or {}
        self._consumer.assign([Position(*at, starts.get(at, OFFSET_BEGINNING)) for at in self._places])

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def __str__(self) -> str:
        assigned = [Position(*place) for place in self._places]
        at = {str(TopicPartition(one.topic, one.partition)): one.offset for one in self._consumer.position(assigned)}
        return f"{len(self.rows)} rows; positions {at}, ends reached { {str(p): o for p, o in self._reached.items()} }"

    def poll(self, wait_s: float = 0.0) -> int:
        """Read the records that have come. Returns the number of all records so far."""
        while messages := self._consumer.consume(5_000, wait_s):
            for message in messages:
                self._take(message)
            wait_s = 0.0
        return len(self.rows)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.rows.append(_record(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            end = _record(message)
            self._reached[end.place] = end.offset
        elif not (error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)):
            raise KafkaException(error)

    def has(self, count: int) -> object:
        """Return a true value if `count` records have come. A condition for `until`."""
        return self.poll() >= count or NotYet(f"{len(self.rows)} of {count} rows, the last one {self.rows[-1:]}")

    def to_the_end(self, timeout_s: float = READ_S, *, stable: bool = False) -> None:
        """Read up to the present ends of the partitions, and wait for open transactions. With `stable`, read only up to
        the first open transaction."""
        deadline = time.monotonic() + timeout_s
        ends = self._probe.ends(self._places, stable=stable)
        while left := {str(place): end for place, end in ends.items() if self._reached[place] < end}:
            if time.monotonic() > deadline:
                raise DeadlineError(
                    f"{left} not reached under read committed within {timeout_s:.0f} s (reached "
                    f"{ {str(place): at for place, at in self._reached.items()} }): a transaction was left open"
                )
            self.poll(0.05)


def _told(end: Any) -> int:
    """Return the offset, or raise an error if there is none. For a broker that is stopped, librdkafka returns -1001
    without an error."""
    if end.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker doesn't tell where a partition ends"))
    return int(end.offset)


def _record(message: Any) -> KafkaRecord:
    """Convert a message of Kafka's client to a record. (By its type, each part of a message may be missing.)"""
    return KafkaRecord(
        message.topic(), message.partition(), message.offset(), message.key(),
        None if message.error() else message.value(), message.timestamp()[1], tuple(message.headers() or ()),
    )  # fmt: skip
