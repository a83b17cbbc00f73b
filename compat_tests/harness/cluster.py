"""Kafka as the suite sees it: topics, records, committed offsets, groups.

*Guarantees*: `read` returns everything up to the partitions' read-uncommitted ends, control records passed over, or
raises; nothing is cached; a topic that isn't there is an error, never one without partitions.
*Assumes*: one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from compat_tests.harness.waiting import DeadlineError, Not, until
from compat_tests.oracles.placement import java_hash
from compat_tests.oracles.rows import Place, Row
from milestones.common.kafka.failures import is_passing

T = TypeVar("T")

CALL_S, ASK_S = 15.0, 20.0
"""How long one call may take, and for how long it is made again."""
STABLE_S = 5.0
"""How long offsets are waited for while a transaction on them is pending."""
OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"


class Cluster:
    """A running Kafka."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = self._new_client()

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
                return Not(str(error))
            return True

        try:
            until(answered, "Kafka answers", ASK_S)
        except DeadlineError:
            raise failures[-1] from None
        return answers[0]

    def close(self) -> None:
        """Nothing may be asked any more. The client ends with its last reference, and its threads with it."""
        del self.admin

    def create(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Create topics with these partition counts. Nothing is deleted by age: timestamps are the tests' own."""
        settings = {"retention.ms": "-1", **(config or {})}
        new = [NewTopic(name, count, 1, config=settings) for name, count in topics.items()]
        for future in self.admin.create_topics(new, request_timeout=CALL_S).values():
            future.result(CALL_S)
        self._await_known(topics)

    def _await_known(self, topics: Mapping[str, int]) -> None:
        """Kafka's controller says that a topic is made before its broker knows of it: a broker that is still deleting
        the topics of the case before learns of new ones up to a second later."""

        def known() -> object:
            found = self.topics()
            lacking = {name: found.get(name, 0) for name, count in topics.items() if found.get(name, 0) < count}
            return Not(f"partitions with a leader: {lacking}") if lacking else True

        until(known, f"the broker knows {', '.join(topics)}", CALL_S)

    def set_topic(self, topic: str, config: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource], request_timeout=CALL_S)[resource].result(CALL_S)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.admin.create_partitions([NewPartitions(topic, partitions)], request_timeout=CALL_S)[topic].result(CALL_S)
        self._await_known({topic: partitions})

    def truncate(self, before: Mapping[Place, int]) -> None:
        """Delete all records before these offsets. Kafka refuses it for a topic that is only compacted."""
        asked = [TopicPartition(*place, offset) for place, offset in before.items()]
        for future in self.admin.delete_records(asked, request_timeout=CALL_S).values():
            future.result(CALL_S)

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics; those that don't exist are passed over."""
        for future in self.admin.delete_topics(list(topics), request_timeout=CALL_S).values() if topics else ():
            with suppress(KafkaException):
                future.result(CALL_S)

    def topics(self) -> dict[str, int]:
        """Partition counts of all topics: of partitions that have a leader."""
        found = self._ask(lambda admin: admin.list_topics(timeout=CALL_S).topics)
        return {name: sum(one.leader >= 0 for one in topic.partitions.values()) for name, topic in found.items()}

    def places(self, topics: Iterable[str]) -> list[Place]:
        """All partitions of these topics. `KafkaException` when the broker doesn't know one of them: a check over no
        partitions would hold whatever is wrong."""
        counts = self.topics()
        places = []
        for topic in topics:
            if not counts.get(topic):
                unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
                raise KafkaException(KafkaError(unknown, f"the broker knows no topic {topic}"))
            places += [Place(topic, number) for number in range(counts[topic])]
        return places

    def ends(
        self, places: Collection[Place], isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[Place, int]:
        """End offsets, uncommitted and control records included; or the last stable ones."""
        if not places:
            return {}
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(*place): latest for place in places}

        def told(admin: AdminClient) -> dict[Place, int]:
            futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=CALL_S)
            return {Place(at.topic, at.partition): _told(future.result(CALL_S)) for at, future in futures.items()}

        return self._ask(told)

    def open_transactions(self, topics: Iterable[str]) -> dict[Place, tuple[int, int]]:
        """Where the last stable offset lies before the end: (last stable offset, end)."""
        places = self.places(topics)
        ends, stable = self.ends(places), self.ends(places, IsolationLevel.READ_COMMITTED)
        return {place: (stable[place], ends[place]) for place in places if stable[place] < ends[place]}

    def committed(self, group: str) -> dict[Place, int]:
        """The group's stable committed offsets. `KafkaException` while a transaction on them is pending.

        By a consumer that never joins: the admin client's own call crashes the process while the group's coordinator
        is being found (confluent-kafka-python's issue 1982).
        """
        counts = {name: count for name, count in self.topics().items() if name[:2] != "__"}
        asked = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
        if not asked:
            return {}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": group,
                "isolation.level": "read_committed",  # so that only stable offsets count
                "log_level": 0,
            }
        )
        try:
            found = consumer.committed(asked, STABLE_S)
        finally:
            consumer.close()
        for at in found:
            if at.error is not None:
                raise KafkaException(at.error)
        return {Place(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def members(self, group: str) -> dict[str, frozenset[Place]]:
        """The group's members as it is now, by client id, with their partitions; none while it rebalances, or while
        one that is dead is still in it beside its successor."""

        def told(admin: AdminClient) -> Any:
            (future,) = admin.describe_consumer_groups([group], request_timeout=CALL_S).values()
            return future.result(CALL_S)

        described = self._ask(told)
        ids = {member.client_id for member in described.members}
        if described.state.name != "STABLE" or len(ids) < len(described.members):
            return {}
        return {
            member.client_id: frozenset(
                Place(at.topic, at.partition) for at in member.assignment.topic_partitions if member.assignment
            )
            for member in described.members
        }

    def describe_topic(self, topic: str) -> Any:
        """Kafka's description of one topic."""
        return self.admin.describe_topics(TopicCollection([topic]))[topic].result(CALL_S)

    def read(self, topics: Iterable[str], timeout_s: float = 60.0, *, uncommitted: bool = False) -> list[Row]:
        """All committed records of these topics, by topic and partition, in order; `uncommitted`: the others too."""
        with Tail(self, topics, uncommitted=uncommitted) as tail:
            tail.to_the_end(timeout_s)
            return sorted(tail.rows, key=lambda row: (row.topic, row.partition, row.offset))

    def group_place(self, group: str) -> Place | None:
        """Where the broker writes down all about a group; None before its first group."""
        offsets = self._ask(lambda admin: admin.list_topics(timeout=CALL_S).topics.get(OFFSETS_TOPIC))
        if offsets is None or not offsets.partitions:
            return None
        return Place(OFFSETS_TOPIC, java_hash(group) % len(offsets.partitions))  # those without a leader count too

    def group_end(self, group: str) -> int:
        """Where ends what the broker wrote down about a group; 0 before the first group."""
        place = self.group_place(group)
        return 0 if place is None else self.ends([place])[place]

    def group_rows(self, group: str, since: int = 0, timeout_s: float = 60.0) -> list[Row]:
        """What the broker wrote down about a group (see `oracles.group.history`), `since` this end."""
        place = self.group_place(group)
        if place is None:
            return []
        with Tail(self, (), [place], from_offsets={place: since}) as tail:
            tail.to_the_end(timeout_s)
            return tail.rows

    def transaction_ends(self) -> dict[Place, int]:
        """Where the transaction coordinators' log ends now; nothing before the first transaction."""
        if TRANSACTIONS_TOPIC not in self.topics():
            return {}
        return self.ends(self.places([TRANSACTIONS_TOPIC]))

    def transaction_rows(self, since: Mapping[Place, int], timeout_s: float = 60.0) -> list[Row]:
        """What the transaction coordinators wrote down (see `oracles.transactions`), `since` these ends."""
        places = list(self.transaction_ends())
        if not places:
            return []
        with Tail(self, (), places, from_offsets={place: since.get(place, 0) for place in places}) as tail:
            tail.to_the_end(timeout_s)
            return sorted(tail.rows, key=lambda row: (row.partition, row.offset))


class Tail(AbstractContextManager["Tail"]):
    """Reads committed records of topics as they come. `rows`: all so far."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Iterable[str],
        places: Collection[Place] = (),
        from_offsets: Mapping[Place, int] | None = None,
        *,
        uncommitted: bool = False,
    ) -> None:
        self._cluster, self._places = cluster, [*places, *cluster.places(topics)]
        self._reached = dict.fromkeys(self._places, 0)
        self.rows: list[Row] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "compat-suite-never-committed",
                "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 10,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        starts = from_offsets or {}
        self._consumer.assign([TopicPartition(*at, starts.get(at, OFFSET_BEGINNING)) for at in self._places])

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def __str__(self) -> str:
        at = {str(Place(one.topic, one.partition)): one.offset for one in self._consumer.position(self._assigned())}
        return f"{len(self.rows)} rows; positions {at}, ends reached { {str(p): o for p, o in self._reached.items()} }"

    def _assigned(self) -> list[TopicPartition]:
        return [TopicPartition(*place) for place in self._places]

    def poll(self, wait_s: float = 0.0) -> int:
        """Take what is there; the number of rows so far."""
        while messages := self._consumer.consume(5_000, wait_s):
            for message in messages:
                self._take(message)
            wait_s = 0.0
        return len(self.rows)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.rows.append(row_of(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            row = row_of(message)
            self._reached[row.place] = row.offset
        elif not (error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)):
            raise KafkaException(error)

    def to_the_end(self, timeout_s: float) -> None:
        """Read up to where the partitions end now; waits for transactions that are open."""
        deadline = time.monotonic() + timeout_s
        ends = self._cluster.ends(self._places)
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


def row_of(message: Any) -> Row:
    """What Kafka's client hands out, as a row; its type says of each part that it may be missing."""
    return Row(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        None if message.error() else message.value(),
        message.timestamp()[1],
        tuple(message.headers() or ()),
    )
