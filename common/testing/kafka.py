"""A running Kafka as a test sees it: topics, records, ends, committed offsets.

    probe = KafkaProbe(broker.bootstrap_servers)
    probe.create({"in": 2, "out": 1})
    probe.write("in", "a", "b", key="k")
    values = [record.value for record in probe.read("out")]

*Guarantees*: a read returns all records up to the partitions' read-uncommitted ends, control records passed over, or
raises. Nothing is cached. A topic that doesn't exist is an error, never a topic without partitions.
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
"""How long one call may take, and for how long it is made again."""
STABLE_S = 5.0
"""How long committed offsets are waited for while a transaction on them is pending."""
READ_S = 60.0
"""How long a read to the end may take."""


class KafkaRecord(NamedTuple):
    """A record that lies in Kafka. `timestamp`: ms since the epoch."""

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
    """Makes topics, writes and reads records, and asks for ends and committed offsets."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin: AdminClient = self._new_client()

    def _new_client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _ask(self, question: Callable[[AdminClient], T]) -> T:
        """A broker that has stood still doesn't know of its own leaders for a while; and one of librdkafka's clients
        may never hear of it again, while a new one is answered at once. So each time it is a new one that asks."""
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
        """Let the client and its threads go; the probe may not be asked any more."""
        del self.admin

    def create(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Create topics with these partition counts; return once each partition has a leader. Kafka deletes nothing by
        age: a test's timestamps are its own."""
        settings = {"retention.ms": "-1", **(config or {})}
        new = [NewTopic(name, count, 1, config=settings) for name, count in topics.items()]
        for future in self.admin.create_topics(new, request_timeout=CALL_S).values():
            future.result(CALL_S)
        self.await_known(topics)

    def make_anew(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Delete topics, and make them again as `create` does, faster than a running application looks at topics.
        What is written afterwards is in the new ones: a broker that hasn't heard of the deletion yet would take records
        for the former ones, and drop them with these."""
        former = self._ids(topics)
        for future in self.admin.delete_topics(list(topics), request_timeout=CALL_S).values():
            future.result(CALL_S)

        def made() -> object:
            try:
                self.create(topics, config)
            except KafkaException as exception:
                error = error_of(exception)
                # What Kafka says of a topic whose deletion isn't over. A request that was given up may have made it.
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
        """Wait until the broker knows these partitions of topics. Kafka's controller says that a topic is made before
        its broker knows of it: a broker that is still deleting other topics learns of new ones up to a second later."""

        def known() -> object:
            found = self.topics()
            lacking = {name: found.get(name, 0) for name, count in topics.items() if found.get(name, 0) < count}
            return NotYet(f"partitions with a leader: {lacking}") if lacking else True

        until(known, f"the broker knows {', '.join(topics)}", CALL_S)

    def topics(self) -> dict[str, int]:
        """Partition counts of all topics: of partitions that have a leader."""
        found = self._ask(lambda admin: admin.list_topics(timeout=CALL_S).topics)
        return {name: sum(one.leader >= 0 for one in topic.partitions.values()) for name, topic in found.items()}

    def places(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of these topics. `KafkaException` when the broker doesn't know one of them: a check over no
        partitions would hold whatever is wrong."""
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
        """Write records and wait until Kafka has them. Partition -1: by the key; timestamp 0: now. With a
        `transactional_id` they are one transaction, committed or aborted."""
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
        """End offsets, uncommitted and control records included; or the last stable ones."""
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
        """The group's stable committed offsets. `KafkaException` while a transaction on them is pending.

        By a consumer that never joins: the admin client's own call crashes the process while the group's coordinator
        is being found (confluent-kafka-python's issue 1982).
        """
        counts = {name: count for name, count in self.topics().items() if name[:2] != "__"}
        asked = [Position(name, number) for name, count in counts.items() for number in range(count)]
        if not asked:
            return {}
        # By read_committed only stable offsets count.
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
        """All committed records of these topics, by topic and partition, in order; `uncommitted`: the others too;
        `stable`: those before the first open transaction, which isn't waited for."""
        with self.tail(*topics, uncommitted=uncommitted) as tail:
            tail.to_the_end(timeout_s, stable=stable)
            return sorted(tail.rows, key=lambda row: (row.topic, row.partition, row.offset))

    def tail(self, *topics: str, uncommitted: bool = False) -> TopicTail:
        """What comes into these topics, from their beginning, as it comes."""
        return TopicTail(self, self.places(topics), uncommitted=uncommitted)


class TopicTail(AbstractContextManager["TopicTail"]):
    """Reads committed records of partitions as they come, each from its beginning or from an offset. `rows`: all so
    far."""

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
        """Take what has come; the number of rows so far."""
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
        """Whether `count` rows have come: a condition for `until`."""
        return self.poll() >= count or NotYet(f"{len(self.rows)} of {count} rows, the last one {self.rows[-1:]}")

    def to_the_end(self, timeout_s: float = READ_S, *, stable: bool = False) -> None:
        """Read up to where the partitions end now, waiting for open transactions; `stable`: only up to those."""
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
    """The offset, if it is one: of a broker that stands still librdkafka says -1001, without an error."""
    if end.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker doesn't tell where a partition ends"))
    return int(end.offset)


def _record(message: Any) -> KafkaRecord:
    """What Kafka's client hands out, as a record; its type says of each part that it may be missing."""
    return KafkaRecord(
        message.topic(), message.partition(), message.offset(), message.key(),
        None if message.error() else message.value(), message.timestamp()[1], tuple(message.headers() or ()),
    )  # fmt: skip
