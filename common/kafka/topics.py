"""`Cluster`: makes the requests about topics, partition counts, offsets and the deletion of records.

*Guarantees*: one owner thread, checked at each call. An answer is complete, or an error is raised.
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
"""The time without an answer after which the question is repeated, and the log says that a broker is waited for."""

PURGE_TOLD_S = 3_600.0
"""The time between two log lines about a topic whose records can't be deleted. Deletion is tried every few seconds."""

RENEW_AGAIN_S = 5.0
"""The least age at which a failing client is replaced. A younger client isn't at fault, and a new one would only add a
connection to a cluster that has problems."""

SLOW = frozenset({KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.REQUEST_TIMED_OUT})
"""Codes of a question that Kafka can't answer yet."""

EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]

ALL = "*"
"""The key of an answer about all topics. No topic can have this name."""

class Cluster(Owned):
    """An admin client for one thread, which replaces its confluent-kafka client after failures."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        request_timeout_ms: int = 10_000,
        login: Login | None = None,
    ) -> None:
        """`login`: tries the credentials before the client does. Given only at a start: later a refused login may mean
        that a broker isn't ready."""
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
        """Replace the client after a failure inside the block.

        After a broker has been suspended, librdkafka may keep a former leader, or a leader's old epoch, for ever. In a
        test 4 of 4 clients kept it for the whole minute. A client whose request only timed out isn't replaced, because
        it may still be connecting."""
        try:
            yield
        except KafkaException as exception:
            self.renew_after(exception)
            raise

    def renew_after(self, exception: KafkaException) -> None:
        """Replace the client after this error, unless the request only timed out, or the client is new."""
        error = error_of(exception)
        since = time.monotonic() - self._renewed
        if (error is None or error.code() not in SLOW) and since >= RENEW_AGAIN_S:
            self.renew()

    def renew(self) -> None:
        """Replace the client by a new one, which may connect to another broker."""
        self._admin.poll(0)  # lets the old client log what it knows about its connections
        self._admin, self._renewed = self._new_client(), time.monotonic()

    def partition_counts(self, topics: Collection[str] | None = None) -> dict[str, int]:
        """Returns the partition counts of these topics, by default of all topics. Topics that don't exist, or that the
        principal may not see, are left out."""
        self._check_owner()
        if topics is not None:
            return {name: told.partitions for name, told in self.described(topics).items()}
        return self._patiently(lambda left: counts_in(self._admin.list_topics(timeout=left)))

    def described(self, topics: Collection[str]) -> dict[str, Described]:
        """Returns the descriptions of these topics. Topics that don't exist, or that the principal may not see, are
        left out."""
        self._check_owner()

        def ask(left: float) -> dict[str, Described]:
            return described_in(self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=left))

        return self._patiently(ask) if topics else {}

    def _patiently(self, ask: Callable[[float], T]) -> T:
        """Call `ask` until it returns an answer. Each call waits `SILENT_S` at most, and the log gets one line that a
        broker is waited for. Raises `KafkaUnreachableError` at the time-out. Raises `SecurityError` without delay if
        the login is refused."""
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
        """Returns the reason why no answer came: the login's, else librdkafka's about its connections, else the
        call's."""
        self._admin.poll(0)
        return self._login.problem or self._reason.text or text_of(exception)

    def start_creating(self, topics: Iterable[InternalTopic], replication_factor: int) -> dict[str, Future[None]]:
        """Begin to create the topics with one request, without waiting. Returns a future per topic."""
        self._check_owner()
        requests = [NewTopic(t.name, t.partitions, replication_factor, config=dict(t.settings)) for t in topics]
        # The broker gets half of the time, so that its answer "not yet" still arrives in time.
        return dict(self._admin.create_topics(
            requests, operation_timeout=self._timeout / 2, request_timeout=self._timeout
        ))  # fmt: skip

    def bounds(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Returns the first offset and the end offset of each partition. The end is after the last record, uncommitted
        and control records included. With `committed` the end is where the first open transaction begins, if there is
        one."""
        self._check_owner()
        asked = list(partitions)
        first = self._offsets(asked, EARLIEST)
        end = self._offsets(asked, LATEST, committed=committed)
        return {partition: (first[partition], end[partition]) for partition in asked}

    @property
    def client(self) -> object:
        """Returns the present client. A caller that keeps this reference still gets the answers to its open questions
        after the client was replaced."""
        return self._admin

    def start_describing(
        self, topics: Collection[str], timeout_ms: int | None = None
    ) -> dict[str, Future[TopicDescription]]:
        """Begin to ask the question of `described`, without waiting. `described_in` reads the answers."""
        self._check_owner()
        self._admin.poll(0)
        asked = TopicCollection(list(topics))
        return dict(self._admin.describe_topics(asked, request_timeout=self._seconds(timeout_ms)))

    def start_counting_all(self, timeout_ms: int | None = None) -> dict[str, Future[dict[str, int]]]:
        """Begin to ask for the partition counts of all topics, without waiting. The only answer has the key `ALL`. The
        client has no call for this question that doesn't block, so a new thread makes the call."""
        self._check_owner()
        self._admin.poll(0)
        client, timeout_s = self._admin, self._seconds(timeout_ms)
        name = f"{self._settings.get('client.id', 'admin')}-topics"
        return {ALL: called_aside(name, lambda: counts_in(client.list_topics(timeout=timeout_s)))}

    def start_looking(
        self, topics: Collection[str] | None, timeout_ms: int | None = None
    ) -> dict[str, Future[dict[str, Described]]]:
        """Begin to ask for descriptions of `topics`, or with None of all topics, without waiting. The only answer has
        the key `ALL`. A new thread asks, with a `MetadataReader` that stays connected until `close`, because the
        client's own call leaks an object per topic and question."""
        self._check_owner()
        asked, most_ms = None if topics is None else set(topics), timeout_ms or int(self._timeout * 1000)
        name = f"{self._settings.get('client.id', 'admin')}-topics"
        return {ALL: called_aside(name, lambda: self._look(asked, most_ms))}

    def _look(self, topics: Collection[str] | None, timeout_ms: int) -> dict[str, Described]:
        """Ask with an idle `MetadataReader`, or a new one. Any thread may call: no other thread uses the same reader
        meanwhile."""
        try:
            reader = self._idle_readers.pop()
        except IndexError:
            reader = MetadataReader(self._settings)
        with lost_as_transport():
            seen = reader.look(topics, timeout_ms)
        self._idle_readers.append(reader)
        if self._closed:  # the cluster was closed during the question
            self.close()
        return seen.found

    def look(self, topics: Collection[str] | None) -> dict[str, Described]:
        """Returns the descriptions of `topics`, or with None of all topics. The question uses a connection of its
        own."""
        return self.seen(topics).found

    def seen(self, topics: Collection[str] | None) -> TopicsSeen:
        """Returns the answer of `look`, and also the names of the topics that this principal may not see."""
        self._check_owner()

        def ask(left: float) -> TopicsSeen:
            with lost_as_transport(), closing(MetadataReader(self._settings)) as reader:
                return reader.look(topics, max(1, int(left * 1000)))

        return self._patiently(ask)

    def close(self) -> None:
        """Close the connections of `start_looking`. A connection that waits for an answer is closed after the
        answer."""
        self._closed = True
        with suppress(IndexError):  # two threads may close at the same time
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
        """Begin to ask for the first or, with `end`, the end offsets of these partitions, without waiting. `told` reads
        an answer. `committed`: see `bounds`."""
        self._check_owner()
        return self._asked(partitions, LATEST if end else EARLIEST, committed=committed, timeout_ms=timeout_ms)

    def start_searching(
        self, times: Mapping[TopicPartition, int], *, committed: bool
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Begin to ask for the first offset of each partition whose record has the given time (ms) or a later one,
        without waiting. `told` reads an answer: -1 if all records are older."""
        self._check_owner()
        specs = {Position(*partition): OffsetSpec.for_timestamp(time) for partition, time in times.items()}
        return self._list_offsets(specs, committed=committed, timeout_ms=None)

    def search(self, times: Mapping[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        """Do `start_searching`, wait for the answers, and return the offsets."""
        with self._renewing():
            return {at: told(at, future) for at, future in self.start_searching(times, committed=committed).items()}

    def ends(
        self, partitions: Iterable[TopicPartition], timeout_ms: int, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Returns the end offset of each partition. `committed`: see `bounds`."""
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
        """Begin to ask the same question about each partition. Returns a future per partition."""
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
        """Returns the time-out of a request in seconds. The default is the time-out of all requests of this object."""
        return self._timeout if timeout_ms is None else timeout_ms / 1000

    def committed(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Returns the group's committed offsets, by default of all partitions (see `GroupReader.committed`)."""
        self._check_owner()
        with self._reader(group) as reader:
            return reader.committed(partitions)

    def all_committed(self, group: str, timeout_ms: int) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns all committed offsets of the group with their metadata (see `GroupReader.offsets`)."""
        self._check_owner()
        with self._reader(group, timeout_ms) as reader:
            return reader.offsets()

    def _reader(self, group: str, timeout_ms: int | None = None) -> closing[GroupReader]:
        """Returns a reader that asks the group's coordinator, with a connection of its own. The default time-out is the
        one of all requests of this object."""
        return closing(GroupReader(self._settings, group, timeout_ms=timeout_ms or int(self._timeout * 1000)))

    def purge(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records before the given offsets. A failure is only logged, because the next deletion includes the
        same records."""
        self.purged(self.start_purging(offsets))

    def start_reading_committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> Future[dict[TopicPartition, OffsetAndMetadata]]:
        """Begin to ask for the group's committed offsets with their metadata, without waiting.

        A new thread asks, with a connection of its own. librdkafka can't be used: if it gives up a question to a
        coordinator, the process crashes (`abort`) when the coordinator answers later."""
        self._check_owner()
        asked = None if partitions is None else list(partitions)

        def ask() -> dict[TopicPartition, OffsetAndMetadata]:
            with self._reader(group) as reader:
                return reader.offsets(asked)

        return called_aside(f"{self._settings.get('client.id', 'admin')}-committed", ask)

    def start_purging(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Future[Any]]:
        """Begin to delete the records before the given offsets, without waiting. `purged` reads the answers."""
        self._check_owner()
        positions = [Position(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        futures = self._admin.delete_records(positions, request_timeout=self._timeout) if positions else {}
        return {TopicPartition(at.topic, at.partition): future for at, future in futures.items()}

    def purged(self, answers: Mapping[TopicPartition, Future[Any]]) -> None:
        """Log refused deletions: for each topic at most one line in `PURGE_TOLD_S`."""
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
                    "can't delete the records of %s that are no longer needed, will try once more later: %s%s",
                    topic, error_of(refused),
                    _right_to_purge(refused),
                )  # fmt: skip
        if failed:
            self.renew_after(next(iter(failed.values())))

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns Kafka's ids of the topics (KIP-516). A topic that is deleted and recreated gets another id. If the
        brokers are older than 2.8, topics have no id and are left out. Raises `KafkaException` if a topic doesn't
        exist."""
        self._check_owner()
        with self._renewing():
            futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout)
            ids = {topic: id_of(future.result()) for topic, future in futures.items()}
        return {topic: id for topic, id in ids.items() if id is not None}

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the settings in effect of each topic. Raises `KafkaException`."""
        with self._renewing():
            answers = self.start_reading_settings(topics)
            return {topic: settings_in(future.result()) for topic, future in answers.items()}

    def start_changing_settings(self, changes: Mapping[str, Mapping[str, str]]) -> dict[str, Future[None]]:
        """Begin to change these settings of the topics, without waiting. Other settings aren't changed."""
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
        """Begin to ask for the settings of the topics, without waiting. `settings_in` reads an answer."""
        self._check_owner()
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(asked, request_timeout=self._timeout) if asked else {}
        return {resource.name: future for resource, future in futures.items()}


def _right_to_purge(exception: KafkaException) -> str:
    error = error_of(exception)
    if error is None or error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return ""
    return "; the topic grows until this principal has the right DELETE on it"
