"""`Cluster`: the runtime's requests to Kafka besides data: topics, partition counts, end offsets, purging.

*Guarantees*: one owner thread, checked; every answer is complete or an error.
*Assumes*: the principal may describe and create topics with the application's prefix.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from milestones.common.errors import KafkaUnreachableError
from milestones.common.kafka.answers import counts_in, described_in, id_of, settings_in, told
from milestones.common.kafka.blocking_call import called_aside
from milestones.common.kafka.clients import LastReason, Owned, client_log, text_of
from milestones.common.kafka.failures import error_of, is_passing
from milestones.common.kafka.groups import GroupReader, the_address
from milestones.common.kafka.internal_topics import InternalTopic
from milestones.common.kafka.login import Login
from milestones.common.kafka.retry import RETRY_PAUSE_MS
from milestones.common.kafka.topic_metadata import Described, MetadataReader, TopicsSeen, lost_as_transport
from milestones.common.records import OffsetAndMetadata, TopicPartition

log: Final = logging.getLogger(__name__)

T = TypeVar("T")

SILENT_S = 2.0
"""The time after which the log says that a broker is waited for, and after which the question is asked again."""

PURGE_TOLD_S = 3_600.0
"""The time between two log lines about a topic that can't be purged: purges are tried every few seconds."""

RENEW_AGAIN_S = 5.0
"""The least age at which a failing client is replaced: a younger one isn't at fault, and a replacement would be one
more connection to a cluster that has problems already."""

SLOW = frozenset({KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.REQUEST_TIMED_OUT})
"""Codes of a question that Kafka can't answer yet."""

EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]

ALL = "*"
"""The key of an answer about all topics; no topic can be called so."""

class Cluster(Owned):
    """The admin side of Kafka, for one thread."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        request_timeout_ms: int = 10_000,
        login: Login | None = None,
    ) -> None:
        """`login`: given at a start only, since later a refused login may be a broker that isn't ready."""
        super().__init__()
        self._settings = dict(settings)
        self._login = login or Login({})
        self._reason = LastReason()
        self._admin = self._new_client()
        self._renewed = float("-inf")
        self._purge_told: dict[str, float] = {}
        self._idle_readers: list[MetadataReader] = []
        self._closed = False
        self._timeout = request_timeout_ms / 1000
        self._servers = settings.get("bootstrap.servers")

    def _new_client(self) -> AdminClient:
        client: dict[str, Any] = {**self._settings, "error_cb": self._reason.note}
        return AdminClient(client, logger=client_log)

    @contextmanager
    def _renewing(self) -> Iterator[None]:
        """Replace the client after a failure inside the block. After a broker has stood still, librdkafka may keep a
        former leader, or a leader's old epoch, for ever. (In a test, 4 of 4 clients kept it for the whole minute.) A
        client that was only slow isn't replaced, because it may still be connecting."""
        try:
            yield
        except KafkaException as exception:
            self.renew_after(exception)
            raise

    def renew_after(self, exception: KafkaException) -> None:
        """Replace the client, unless it was only slow, or is new."""
        error = error_of(exception)
        since = time.monotonic() - self._renewed
        if (error is None or error.code() not in SLOW) and since >= RENEW_AGAIN_S:
            self.renew()

    def renew(self) -> None:
        """Replace the client by another one, which may ask another broker."""
        self._admin.poll(0)  # for what it says of its connections
        self._admin, self._renewed = self._new_client(), time.monotonic()

    def partition_counts(self, topics: Collection[str] | None = None) -> dict[str, int]:
        """The partition counts of these topics, by default of all, as far as they exist and the principal may see
        them."""
        self._check_owner()
        if topics is not None:
            return {name: told.partitions for name, told in self.described(topics).items()}
        return self._patiently(lambda left: counts_in(self._admin.list_topics(timeout=left)))

    def described(self, topics: Collection[str]) -> dict[str, Described]:
        """The descriptions of these topics, without topics that don't exist or that the principal may not see."""
        self._check_owner()

        def ask(left: float) -> dict[str, Described]:
            return described_in(self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=left))

        return self._patiently(ask) if topics else {}

    def _patiently(self, ask: Callable[[float], T]) -> T:
        """Call `ask` again, after a line in the log, when no answer came in `SILENT_S`, until the time-out.
        `SecurityError` at once when the login is refused."""
        if self._login.can_be_refused:
            self._login.look()
        deadline = time.monotonic() + self._timeout
        told = False
        while True:
            left = max(deadline - time.monotonic(), 0.001)
            try:
                with self._renewing():
                    answer = ask(min(SILENT_S, left))
                self._admin.poll(0)
                self._reason.text = None
                return answer
            except KafkaException as exception:
                if not is_passing(exception):
                    raise
                if time.monotonic() >= deadline:
                    raise self._unreachable(exception) from exception
                self._login.look()
                if not told:
                    told = True
                    log.info("waiting for a broker of bootstrap_servers=%r: %s", self._servers, self._why(exception))
            time.sleep(RETRY_PAUSE_MS / 1000)

    def _unreachable(self, exception: KafkaException) -> KafkaUnreachableError:
        return KafkaUnreachableError(
            f"no broker of bootstrap_servers={self._servers!r} answered within {self._timeout:g} s: "
            f"{self._why(exception)}; check {the_address(self._servers)} and that the brokers are up"
        )

    def _why(self, exception: KafkaException) -> str:
        """librdkafka's text about its connections, or else about the call."""
        self._admin.poll(0)
        return self._login.problem or self._reason.text or text_of(exception)

    def start_creating(self, topics: Iterable[InternalTopic], replication_factor: int) -> dict[str, Future[None]]:
        """Begin to make the topics, by one request, without waiting; returns a future per topic."""
        self._check_owner()
        requests = [NewTopic(t.name, t.partitions, replication_factor, config=dict(t.settings)) for t in topics]
        # Half of the time is for the way: a broker's answer "not yet" still arrives.
        return dict(self._admin.create_topics(
            requests, operation_timeout=self._timeout / 2, request_timeout=self._timeout
        ))  # fmt: skip

    def bounds(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, tuple[int, int]]:
        """First offset and end of each partition. `committed`: a partition ends where its first open transaction
        begins; otherwise after its last record, uncommitted and control records included."""
        self._check_owner()
        asked = list(partitions)
        first = self._offsets(asked, EARLIEST)
        end = self._offsets(asked, LATEST, committed=committed)
        return {partition: (first[partition], end[partition]) for partition in asked}

    @property
    def client(self) -> object:
        """The present client. A holder of this reference still gets the answers to its questions after a
        replacement."""
        return self._admin

    def start_describing(
        self, topics: Collection[str], timeout_ms: int | None = None
    ) -> dict[str, Future[TopicDescription]]:
        """Begin `described`, without waiting; `described_in` reads the answers."""
        self._check_owner()
        self._admin.poll(0)
        asked = TopicCollection(list(topics))
        return dict(self._admin.describe_topics(asked, request_timeout=self._seconds(timeout_ms)))

    def start_counting_all(self, timeout_ms: int | None = None) -> dict[str, Future[dict[str, int]]]:
        """Begin `partition_counts` of all topics, without waiting; the one answer has the key `ALL`. A thread makes the
        call, since the client has none for this question that doesn't wait."""
        self._check_owner()
        self._admin.poll(0)
        client, timeout_s = self._admin, self._seconds(timeout_ms)
        name = f"{self._settings.get('client.id', 'admin')}-topics"
        return {ALL: called_aside(name, lambda: counts_in(client.list_topics(timeout=timeout_s)))}

    def start_looking(
        self, topics: Collection[str] | None, timeout_ms: int | None = None
    ) -> dict[str, Future[dict[str, Described]]]:
        """Begin `described`, of all topics where `topics` is None, without waiting; the one answer has the key `ALL`. A
        thread asks, by a connection that is kept until `close`: the client would never free an object per topic and
        question."""
        self._check_owner()
        asked, most_ms = None if topics is None else set(topics), timeout_ms or int(self._timeout * 1000)
        name = f"{self._settings.get('client.id', 'admin')}-topics"
        return {ALL: called_aside(name, lambda: self._look(asked, most_ms))}

    def _look(self, topics: Collection[str] | None, timeout_ms: int) -> dict[str, Described]:
        """Any thread may look: a reader is used by one at a time."""
        try:
            reader = self._idle_readers.pop()
        except IndexError:
            reader = MetadataReader(self._settings)
        with lost_as_transport():
            seen = reader.look(topics, timeout_ms)
        self._idle_readers.append(reader)
        if self._closed:  # while this one was under way
            self.close()
        return seen.found

    def look(self, topics: Collection[str] | None) -> dict[str, Described]:
        """`described`, of all topics where `topics` is None, by a connection of its own."""
        return self.seen(topics).found

    def seen(self, topics: Collection[str] | None) -> TopicsSeen:
        """As `look`, with the topics that this principal may not see."""
        self._check_owner()

        def ask(left: float) -> TopicsSeen:
            with lost_as_transport(), closing(MetadataReader(self._settings)) as reader:
                return reader.look(topics, max(1, int(left * 1000)))

        return self._patiently(ask)

    def close(self) -> None:
        """Close the connections of `start_looking`: those that are idle now, others once they have their answer."""
        self._closed = True
        with suppress(IndexError):  # two threads may close
            while True:
                self._idle_readers.pop().close()

    def start_listing(
        self,
        partitions: Iterable[TopicPartition],
        *,
        end: bool,
        committed: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Begin to ask where these partitions begin, or end, as `bounds`, without waiting; `told` reads an answer."""
        self._check_owner()
        return self._asked(partitions, LATEST if end else EARLIEST, committed=committed, timeout_ms=timeout_ms)

    def start_searching(
        self, times: Mapping[TopicPartition, int], *, committed: bool
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Begin to ask for the first offsets whose records are of these times (ms) or later, without waiting; `told`
        reads an answer, -1 where all records are older."""
        self._check_owner()
        specs = {Position(*partition): OffsetSpec.for_timestamp(time) for partition, time in times.items()}
        return self._list_offsets(specs, committed=committed, timeout_ms=None)

    def search(self, times: Mapping[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        """The answers of `start_searching`."""
        with self._renewing():
            return {at: told(at, future) for at, future in self.start_searching(times, committed=committed).items()}

    def ends(
        self, partitions: Iterable[TopicPartition], timeout_ms: int, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The end of each partition, as in `bounds`."""
        self._check_owner()
        self._admin.poll(0)
        return self._offsets(partitions, LATEST, committed=committed, timeout_ms=timeout_ms)

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, committed: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        with self._renewing():
            asked = self._asked(partitions, spec, committed=committed, timeout_ms=timeout_ms)
            return {at: told(at, future) for at, future in asked.items()}

    def _asked(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, committed: bool, timeout_ms: int | None
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Ask one question, with an answer for each partition."""
        specs = {Position(*partition): spec for partition in partitions}
        return self._list_offsets(specs, committed=committed, timeout_ms=timeout_ms)

    def _list_offsets(
        self, positions: dict[Position, OffsetSpec], *, committed: bool, timeout_ms: int | None
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        if not positions:
            return {}
        futures = self._admin.list_offsets(
            positions,
            isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._seconds(timeout_ms),
        )
        return {TopicPartition(at.topic, at.partition): future for at, future in futures.items()}

    def _seconds(self, timeout_ms: int | None) -> float:
        """The time-out of a request, that of this cluster's requests by default."""
        return self._timeout if timeout_ms is None else timeout_ms / 1000

    def committed(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The group's committed offsets, of all partitions by default; see `GroupReader.committed`."""
        self._check_owner()
        with self._reader(group) as reader:
            return reader.committed(partitions)

    def all_committed(self, group: str, timeout_ms: int) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that the group has committed; see `GroupReader.offsets`."""
        self._check_owner()
        with self._reader(group, timeout_ms) as reader:
            return reader.offsets()

    def _reader(self, group: str, timeout_ms: int | None = None) -> closing[GroupReader]:
        """Asks the group's coordinator, by a connection of its own, for as long as this cluster's requests may take."""
        return closing(GroupReader(self._settings, group, timeout_ms=timeout_ms or int(self._timeout * 1000)))

    def purge(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records before the offsets. A failure is logged: the next purge covers it."""
        self.purged(self.start_purging(offsets))

    def start_reading_committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> Future[dict[TopicPartition, OffsetAndMetadata]]:
        """Begin `committed`, with the offsets' metadata, without waiting. A thread asks, by a connection of its own: a
        question to a coordinator that librdkafka has given up ends the process (`abort`) once the coordinator answers
        again."""
        self._check_owner()
        asked = None if partitions is None else list(partitions)

        def ask() -> dict[TopicPartition, OffsetAndMetadata]:
            with self._reader(group) as reader:
                return reader.offsets(asked)

        return called_aside(f"{self._settings.get('client.id', 'admin')}-committed", ask)

    def start_purging(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Future[Any]]:
        """Begin `purge`, without waiting; `purged` reads the answers."""
        self._check_owner()
        positions = [Position(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        futures = self._admin.delete_records(positions, request_timeout=self._timeout) if positions else {}
        return {TopicPartition(at.topic, at.partition): future for at, future in futures.items()}

    def purged(self, answers: Mapping[TopicPartition, Future[Any]]) -> None:
        """Log refused purges: of each topic once, and again after `PURGE_TOLD_S`."""
        failed: dict[str, KafkaException] = {}
        for at, future in answers.items():
            try:
                future.result()
                self._purge_told.pop(at.topic, None)
            except KafkaException as exception:
                failed[at.topic] = exception
        for topic, refused in failed.items():
            now = time.monotonic()
            if now - self._purge_told.get(topic, float("-inf")) >= PURGE_TOLD_S:
                self._purge_told[topic] = now
                log.warning(
                    "what nothing needs any more of %s can't be deleted, will be tried again: %s%s",
                    topic, error_of(refused),
                    _right_to_purge(refused),
                )  # fmt: skip
        if failed:
            self.renew_after(next(iter(failed.values())))

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Kafka's ids of the topics (KIP-516); a topic that is deleted and made anew gets another id. Topics of brokers
        older than 2.8 have no id and are left out. `KafkaException` when there is no such topic."""
        self._check_owner()
        with self._renewing():
            futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout)
            ids = {topic: id_of(future.result()) for topic, future in futures.items()}
        return {topic: id for topic, id in ids.items() if id is not None}

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings in effect, by topic. `KafkaException`."""
        with self._renewing():
            answers = self.start_reading_settings(topics)
            return {topic: settings_in(future.result()) for topic, future in answers.items()}

    def start_changing_settings(self, changes: Mapping[str, Mapping[str, str]]) -> dict[str, Future[None]]:
        """Begin to give these topics these settings, without waiting; they keep all others."""
        self._check_owner()
        asked = [
            ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in settings.items()
            ])
            for topic, settings in changes.items()
        ]  # fmt: skip
        futures = self._admin.incremental_alter_configs(asked, request_timeout=self._timeout) if asked else {}
        return {resource.name: future for resource, future in futures.items()}

    def start_reading_settings(self, topics: Iterable[str]) -> dict[str, Future[dict[str, ConfigEntry]]]:
        """Begin `topic_settings`, without waiting; `settings_in` reads an answer."""
        self._check_owner()
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(asked, request_timeout=self._timeout) if asked else {}
        return {resource.name: future for resource, future in futures.items()}


def _right_to_purge(exception: KafkaException) -> str:
    error = error_of(exception)
    if error is None or error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return ""
    return "; the topic grows until this principal has the right DELETE on it"
