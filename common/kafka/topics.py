"""What the runtime asks of the cluster besides data: topics, partition counts, end offsets, purging.

*Guarantees*: one owner thread, checked; every answer is complete or an error.
*Assumes*: the principal may describe and create topics with the application's prefix.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from milestones.common.errors import KafkaUnreachableError, MilestonesError, SourceTopicError
from milestones.common.kafka.clients import LastReason, Owned, client_log, text_of
from milestones.common.kafka.failures import error_of, is_passing
from milestones.common.kafka.groups import committed_offsets
from milestones.common.kafka.patience import RETRY_PAUSE_MS
from milestones.common.records import TopicPartition

log = logging.getLogger(__name__)

SILENT_S = 2.0
"""How long a broker may take before the log says that it is waited for, and before it is asked again."""

SLOW = frozenset({KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.REQUEST_TIMED_OUT})
"""Codes of a question that has no answer yet."""

CHANGELOG_SETTINGS = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
"""Topic settings of a key-value store's changelog, as Kafka Streams makes them."""

REPARTITION_SETTINGS = {
    "cleanup.policy": "delete",
    "segment.bytes": "52428800",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
}
"""Topic settings of a repartition topic, as Kafka Streams makes them: it is purged by us, never by age."""


@dataclass(frozen=True)
class InternalTopic:
    """A topic that the application owns."""

    name: str
    partitions: int
    settings: Mapping[str, str]


class Cluster(Owned):
    """The admin side of Kafka, for one thread."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        request_timeout_ms: int = 10_000,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`stopped`: whether nobody waits for topics any more; looked at every `SILENT_S` while no broker answers."""
        super().__init__()
        self._stopped = stopped
        self._settings = dict(settings)
        self._reason = LastReason()
        self._admin = self._new_client()
        self._timeout = request_timeout_ms / 1000
        self._servers = settings.get("bootstrap.servers")

    def _new_client(self) -> AdminClient:
        client: dict[str, Any] = {**self._settings, "error_cb": self._reason.note}
        return AdminClient(client, logger=client_log)

    @contextmanager
    def _renewing(self) -> Iterator[None]:
        """A client that has failed isn't asked again: once a broker has stood still, librdkafka may keep a leader that
        isn't there any more, or one's old epoch, for ever (seen for a minute, of 4 clients of 4). Who was only slow may
        still be connecting."""
        try:
            yield
        except KafkaException as exception:
            self._renew_after(exception)
            raise

    def _renew_after(self, exception: KafkaException) -> None:
        error = error_of(exception)
        if error is None or error.code() not in SLOW:
            self._admin.poll(0)  # for what it says of its connections
            self._admin = self._new_client()

    def partition_counts(self) -> dict[str, int]:
        """Partition counts of all topics that this principal may see."""
        self._check_owner()
        topics = self._metadata().topics
        self._admin.poll(0)
        self._reason.text = None
        return {
            name: len(topic.partitions) for name, topic in topics.items() if topic.error is None and topic.partitions
        }

    def _metadata(self) -> ClusterMetadata:
        """Asked again when nothing came in `SILENT_S`, after a word about it, until the time-out."""
        deadline = time.monotonic() + self._timeout
        told = False
        while True:
            left = max(deadline - time.monotonic(), 0.001)
            try:
                with self._renewing():
                    return self._admin.list_topics(timeout=min(SILENT_S, left))
            except KafkaException as exception:
                if not is_passing(exception):
                    raise
                if time.monotonic() >= deadline or self._stopped():
                    raise self._unreachable(exception) from exception
                if not told:
                    told = True
                    log.info("waiting for a broker of bootstrap_servers=%r: %s", self._servers, self._why(exception))
            time.sleep(RETRY_PAUSE_MS / 1000)

    def _unreachable(self, exception: KafkaException) -> KafkaUnreachableError:
        return KafkaUnreachableError(
            f"no broker of bootstrap_servers={self._servers!r} answered within {self._timeout:g} s: "
            f"{self._why(exception)}; check the address and that the brokers are up"
        )

    def _why(self, exception: KafkaException) -> str:
        """What librdkafka says about its connections, or else about the call."""
        self._admin.poll(0)
        return self._reason.text or text_of(exception)

    def create(self, topics: Iterable[InternalTopic], replication_factor: int) -> frozenset[str]:
        """Create the topics; one that exists already is checked for its partition count. Those that were made."""
        self._check_owner()
        wanted = {topic.name: topic for topic in topics}
        existing = self.partition_counts()
        missing = [topic for name, topic in wanted.items() if name not in existing]
        requests = [
            NewTopic(t.name, t.partitions, replication_factor, config=dict(t.settings)) for t in missing
        ]
        futures = self._admin.create_topics(requests, operation_timeout=self._timeout) if requests else {}
        made = frozenset(name for name, future in futures.items() if self._created(future, wanted[name]))
        existing |= self._heard_of({topic.name for topic in missing} - made)
        for name in wanted.keys() & existing.keys():
            if existing[name] != wanted[name].partitions:
                raise SourceTopicError(
                    f"internal topic {name} has {existing[name]} partitions, the topology needs "
                    f"{wanted[name].partitions}: its input's partition count was changed; reset the application "
                    "(`milestones reset`), or give the input its old number of partitions in a new topic"
                )
        return made

    def _heard_of(self, names: Set[str]) -> dict[str, int]:
        """Partition counts of topics that exist, as soon as the broker that answers has heard of them."""
        deadline = time.monotonic() + self._timeout
        counts: dict[str, int] = {}
        while not counts.keys() >= names and time.monotonic() < deadline:
            time.sleep(RETRY_PAUSE_MS / 1000)
            counts = self.partition_counts()
        return {name: counts[name] for name in names if name in counts}

    def _created(self, future: Future[None], topic: InternalTopic) -> bool:
        """Whether it was made. It may have been there already: another leader's, or one that the broker that answered
        hasn't heard of yet."""
        try:
            future.result()
        except KafkaException as exception:
            error = error_of(exception)
            if error is not None and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise MilestonesError(
                f"can't create internal topic {topic.name} ({topic.partitions} partitions): {error}; "
                "check replication_factor and this principal's rights"
            ) from exception
        log.info("created topic %s with %d partitions", topic.name, topic.partitions)
        return True

    def bounds(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, tuple[int, int]]:
        """First offset and end of each partition. `committed`: the end is where the first open transaction begins;
        else it is after the last record, uncommitted and control records included."""
        self._check_owner()
        asked = list(partitions)
        first = self._offsets(asked, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        end = self._offsets(asked, OffsetSpec.latest(), committed=committed)  # type: ignore[no-untyped-call]
        return {partition: (first[partition], end[partition]) for partition in asked}

    def ends(
        self, partitions: Iterable[TopicPartition], timeout_ms: int, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The end of each partition, as of `bounds`."""
        self._check_owner()
        self._admin.poll(0)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(partitions, latest, committed=committed, timeout_s=timeout_ms / 1000)

    def known_ends(self, partitions: Iterable[TopicPartition], *, timeout_ms: int) -> dict[TopicPartition, int]:
        """Like `ends`, but partitions of which the brokers don't tell are left out."""
        self._check_owner()
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        found: dict[TopicPartition, int] = {}
        failed: KafkaException | None = None
        for at, future in self._asked(partitions, latest, timeout_s=timeout_ms / 1000).items():
            try:
                found[at] = _told(at, future)
            except KafkaException as exception:
                log.debug("no end of %s: %s", at, text_of(exception))
                failed = exception
        if failed is not None:
            self._renew_after(failed)
        return found

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, committed: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int]:
        with self._renewing():
            asked = self._asked(partitions, spec, committed=committed, timeout_s=timeout_s)
            return {at: _told(at, future) for at, future in asked.items()}

    def _asked(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, committed: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """One question, an answer for each partition."""
        positions = {Position(*partition): spec for partition in partitions}
        if not positions:
            return {}
        futures = self._admin.list_offsets(
            positions,
            isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._timeout if timeout_s is None else timeout_s,
        )
        return {TopicPartition(at.topic, at.partition): future for at, future in futures.items()}

    def committed(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The group's committed offsets, of all partitions by default; see `committed_offsets`."""
        self._check_owner()
        return committed_offsets(self._settings, group, partitions, timeout_ms=int(self._timeout * 1000))

    def purge(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records before the offsets. A failure is logged: the next purge covers it."""
        self._check_owner()
        if not offsets:
            return
        futures = self._admin.delete_records(
            [Position(t, p, offset) for (t, p), offset in offsets.items()], request_timeout=self._timeout
        )
        failed: KafkaException | None = None
        for position, future in futures.items():
            try:
                future.result()
            except KafkaException as exception:
                failed = exception
                log.warning("purge of %s failed, will be tried again: %s", position, error_of(exception))
        if failed is not None:
            self._renew_after(failed)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Kafka's ids of the topics (KIP-516): a topic that is deleted and made anew gets another one. None of topics
        that brokers older than 2.8 made, which have none."""
        self._check_owner()
        with self._renewing():
            futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout)
            ids = {topic: future.result().topic_id for topic, future in futures.items()}
        return {
            topic: str(id)
            for topic, id in ids.items()
            if id.get_most_significant_bits() or id.get_least_significant_bits()
        }

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """By topic, its settings as they are in effect. `KafkaException`."""
        self._check_owner()
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        with self._renewing():
            futures = self._admin.describe_configs(asked, request_timeout=self._timeout) if asked else {}
            return {
                resource.name: {name: str(entry.value) for name, entry in future.result().items()}
                for resource, future in futures.items()
            }


def _told(at: TopicPartition, future: Future[ListOffsetsResultInfo]) -> int:
    """The offset; -1 when no record is as late as asked for. Of a broker that stands still when asked librdkafka says
    offset -1001, without an error."""
    offset: int = future.result().offset
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"the leader of {at} doesn't tell its offsets"))
    return offset
