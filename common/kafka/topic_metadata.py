"""`MetadataReader`: asks brokers for the partitions and ids of topics. A topic that was deleted and recreated has
another id.

*Guarantees*: an answer is complete, or an error is raised. A question costs one request, and leaves nothing in memory.
*Assumes*: one thread at a time uses a reader.

*Why this way*: confluent-kafka's `describe_topics` leaks one object per topic and call.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.types import TopicName

from milestones.common.kafka.wire import Connect, ConnectionLostError, Connector, Wire
from milestones.common.kafka.wire_settings import Address, WireSettings

UNSEEN: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION}
)
"""Codes of a topic that doesn't exist, or that this principal may not see."""


class Described(NamedTuple):
    """A topic's number of partitions and Kafka's id of the topic. `id` is None if the broker is too old for ids (see
    `Cluster.topic_ids`)."""

    partitions: int
    id: str | None


class TopicsSeen(NamedTuple):
    """`found`: the existing topics, by name. `forbidden`: the topics that this principal may not see. They may exist or
    not."""

    found: dict[str, Described]
    forbidden: frozenset[str]


class MetadataReader:
    """Reads topic metadata. *Owns*: a connection to one broker. Brokers that an answer names are used for later
    connections, like the bootstrap servers."""

    def __init__(self, settings: Mapping[str, Any], connect: Connect | None = None) -> None:
        """`settings`: the settings of a client, with confluent-kafka's names. Raises `ConfigError` for wrong ones."""
        self._settings = WireSettings.of(settings)
        self._connect = connect
        self._known: list[Address] = list(self._settings.bootstrap)
        self._turn = 0
        self._wire: Wire | None = None

    def look(self, topics: Collection[str] | None, timeout_ms: int) -> TopicsSeen:
        """Ask for these topics, or with None for all topics that this principal may see.

        Raises `ConnectionLostError` if the connection fails, `MembershipError` if no connection will ever succeed, and
        `KafkaException` if the broker answers with an error for a topic."""
        asked = None if topics is None else [MetadataRequestTopic(topic_id=None, name=TopicName(one)) for one in topics]
        request = MetadataRequest(
            topics=None if asked is None else tuple(asked),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        try:
            if self._wire is None:
                self._wire = self._open(timeout_ms)
            answer = self._wire.call(request, MetadataResponse, timeout_ms)
        except BaseException:
            self.close()
            raise
        self._note(Address(broker.host, broker.port) for broker in answer.brokers)
        return _seen_in(answer, all_=topics is None)

    def _open(self, timeout_ms: int) -> Wire:
        most_ms = min(self._settings.connect_timeout_ms, timeout_ms)
        connect = self._connect or Connector(replace(self._settings, connect_timeout_ms=most_ms))
        return connect(self._next())

    def _next(self) -> Address:
        """Returns the broker to connect to. Each call returns the next known broker, so that a dead one is skipped."""
        address = self._known[self._turn % len(self._known)]
        self._turn += 1
        return address

    def _note(self, addresses: Iterable[Address]) -> None:
        self._known += [address for address in dict.fromkeys(addresses) if address not in self._known]

    def close(self) -> None:
        """Close the connection. The next question opens a connection to another broker."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None


@contextmanager
def lost_as_transport() -> Iterator[None]:
    """Turn `ConnectionLostError` into the `KafkaException` that confluent-kafka's clients raise for lost
    connections."""
    try:
        yield
    except ConnectionLostError as error:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(error))) from error


def _seen_in(answer: MetadataResponse, *, all_: bool) -> TopicsSeen:
    found: dict[str, Described] = {}
    forbidden: set[str] = set()
    for topic in answer.topics:
        name, code = topic.name, topic.error_code
        if name is None:
            continue
        if code is ErrorCode.none and topic.partitions:
            found[name] = Described(len(topic.partitions), None if topic.topic_id is None else _text(topic.topic_id))
        elif code is ErrorCode.topic_authorization_failed:
            forbidden.add(name)
        elif code is not ErrorCode.none and code.value not in UNSEEN and not all_:
            raise KafkaException(KafkaError(code.value, f"{name}: {code.name}"))
    return TopicsSeen(found, frozenset(forbidden))


def _text(id: UUID) -> str:
    """Returns the topic id as text, as confluent-kafka prints it and as manifests of stores contain it."""
    return base64.b64encode(id.bytes).rstrip(b"=").decode()


def number_of(id: str) -> int:
    """Returns a hash of the topic's id: a signed number of 64 bits, for places without room for the whole id."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest(), "big", signed=True)
