"""Asks brokers about topics: their partitions, and the ids that show a topic that was made anew.

*Guarantees*: an answer is complete, or an error. A question costs one request, and nothing of it is kept: confluent's
`describe_topics` never frees an object per topic.
*Assumes*: one thread at a time uses a reader.
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
"""Codes of a topic that doesn't exist, as far as this principal may know."""


class Described(NamedTuple):
    """A topic: its number of partitions, and Kafka's id of it where it has one (see `Cluster.topic_ids`)."""

    partitions: int
    id: str | None


class TopicsSeen(NamedTuple):
    """The topics that exist, by name, and those that this principal may not see, whether they exist or not."""

    found: dict[str, Described]
    forbidden: frozenset[str]


class MetadataReader:
    """*Owns*: a connection to one broker. Brokers that an answer names are asked like the bootstrap servers."""

    def __init__(self, settings: Mapping[str, Any], connect: Connect | None = None) -> None:
        """`settings`: a client's, under confluent-kafka's names. `ConfigError`."""
        self._settings = WireSettings.of(settings)
        self._connect = connect
        self._known: list[Address] = list(self._settings.bootstrap)
        self._turn = 0
        self._wire: Wire | None = None

    def look(self, topics: Collection[str] | None, timeout_ms: int) -> TopicsSeen:
        """Look at these topics, by default all that this principal may see. `ConnectionLostError`; `MembershipError`
        where a connection can't be made; `KafkaException` where the broker can't say it of a topic."""
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
        """The next one in turn each time, so that a dead broker doesn't hide a live one."""
        address = self._known[self._turn % len(self._known)]
        self._turn += 1
        return address

    def _note(self, addresses: Iterable[Address]) -> None:
        self._known += [address for address in dict.fromkeys(addresses) if address not in self._known]

    def close(self) -> None:
        """Close the connection; the next question opens another one, to another broker."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None


@contextmanager
def lost_as_transport() -> Iterator[None]:
    """Raise a lost connection as the error that confluent's clients have for it."""
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
    """As confluent-kafka prints it, and as manifests of stores have it."""
    return base64.b64encode(id.bytes).rstrip(b"=").decode()


def number_of(id: str) -> int:
    """A signed number of 64 bits that stands for a topic's id, for places that have room for no more."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest(), "big", signed=True)
