"""The records between the two sides of a join by foreign key, with Kafka Streams' bytes (KIP-213).

A row of the left table subscribes to the key of the right table that it refers to; the right side responds.

| | bytes |
|---|---|
| subscription | version (1), instruction (1), hash (16), primary key, and from version 1 on partition (4) |
| response | version (1), hash (16), the right table's value (no bytes if there is none) |
| key in the store of subscriptions | length of the foreign key (4), foreign key, primary key |

If the highest bit of the version is set, there is no hash. The hash is that of the left row's value. By it the left
side recognises a response to a row that has changed since. It is murmur3 of 128 bits with the seed 104729, as two
longs, big-endian.

*Guarantees*: the serdes read the bytes that they wrote, and those that Kafka Streams since 2.4 wrote. A value of the
right table that has no bytes, such as an empty text, is read as None: in the bytes the two are the same.
*Assumes*: nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import mmh3

from milestones.common.serdes import Serde

UNSUBSCRIBE: Final = 0
"""Remove the subscription: the row refers to another key now."""
UNSUBSCRIBE_AND_ANSWER: Final = 1
"""Remove the subscription, and answer that there is no value: the row refers to no key now."""
ANSWER: Final = 2
"""Store the subscription, and answer in any case. Without a foreign key there is nothing to store."""
ANSWER_IF_FOUND: Final = 3
"""Store the subscription, and answer if there is a value. This instruction is sent if the row wasn't joined before, or
was joined with the same key."""

_INSTRUCTIONS: Final = frozenset({UNSUBSCRIBE, UNSUBSCRIBE_AND_ANSWER, ANSWER, ANSWER_IF_FOUND})

_NO_HASH, _VERSION = 0x80, 0x7F
_HASH_BYTES, _SEED = 16, 104729
_TWO_LONGS: Final = struct.Struct(">QQ")
_INT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">I")


class SubscriptionWrapper(NamedTuple):
    """A subscription of a row of the left table to the foreign key that it refers to. `digest`: the hash of the row's
    value, None if the row was deleted. `partition`: the partition of the row. It is None in version 0, which doesn't
    contain it."""

    digest: bytes | None
    instruction: int
    primary_key: Any
    partition: int | None


class SubscriptionResponseWrapper(NamedTuple):
    """The right table's value, as the response to a row of the left table. `digest`: the hash in the subscription.
    `partition`: the partition of the left row. It isn't part of the bytes."""

    digest: bytes | None
    value: Any
    partition: int | None = None


def hash_of(data: bytes) -> bytes:
    """Return the hash of a serialised value."""
    return _TWO_LONGS.pack(*mmh3.mmh3_x64_128_utupledigest(data, _SEED))


def prefix_of(foreign_key: bytes) -> bytes:
    """Return the prefix of the keys of all subscriptions to a foreign key. No other keys have this prefix."""
    return _LENGTH.pack(len(foreign_key)) + foreign_key


def subscriber(stored: bytes) -> tuple[bytes | None, int | None]:
    """Read the hash and the partition of a serialised subscription."""
    first, digest, _ = _head(stored, 2, 1, "a subscription")
    return digest, _INT.unpack(stored[-_INT.size :])[0] if first & _VERSION else None


class SubscriptionSerde(Serde[SubscriptionWrapper]):
    """The serde of subscriptions. `inner`: the serde of the left table's primary keys."""

    __slots__ = ("inner",)

    def __init__(self, inner: Serde[Any]) -> None:
        super().__init__(_unused, _unused, name=f"SUBSCRIPTION({inner.name})")
        self.inner: Serde[Any] = inner

    def serializer(self, topic: str) -> Callable[[SubscriptionWrapper], bytes]:
        write = self.inner.serializer(primary_key_topic(topic))

        def serialize(subscription: SubscriptionWrapper) -> bytes:
            digest, instruction, primary_key, partition = subscription
            version, end = (0, b"") if partition is None else (1, _INT.pack(partition))
            head = bytes((version if digest is not None else version | _NO_HASH, instruction))
            return b"".join((head, digest or b"", write(primary_key), end))

        return serialize

    def deserializer(self, topic: str) -> Callable[[bytes], SubscriptionWrapper]:
        read = self.inner.deserializer(primary_key_topic(topic))

        def deserialize(data: bytes) -> SubscriptionWrapper:
            first, digest, start = _head(data, 2, 1, "a subscription")
            if data[1] not in _INSTRUCTIONS:
                raise ValueError(f"{data[1]} is no instruction of a subscription")
            if not first & _VERSION:
                return SubscriptionWrapper(digest, data[1], read(data[start:]), None)
            end = len(data) - _INT.size
            if end < start:
                raise ValueError(f"a subscription of {len(data)} bytes is cut off")
            return SubscriptionWrapper(digest, data[1], read(data[start:end]), _INT.unpack_from(data, end)[0])

        return deserialize


class SubscriptionResponseSerde(Serde[SubscriptionResponseWrapper]):
    """The serde of responses. `inner`: the serde of the right table's values."""

    __slots__ = ("inner",)

    def __init__(self, inner: Serde[Any]) -> None:
        super().__init__(_unused, _unused, name=f"RESPONSE({inner.name})")
        self.inner: Serde[Any] = inner

    def serializer(self, topic: str) -> Callable[[SubscriptionResponseWrapper], bytes]:
        write = self.inner.serializer(topic)

        def serialize(response: SubscriptionResponseWrapper) -> bytes:
            digest, value, _ = response
            head = b"\x80" if digest is None else b"\x00" + digest
            return head if value is None else head + write(value)

        return serialize

    def deserializer(self, topic: str) -> Callable[[bytes], SubscriptionResponseWrapper]:
        read = self.inner.deserializer(topic)

        def deserialize(data: bytes) -> SubscriptionResponseWrapper:
            _, digest, start = _head(data, 1, 0, "a response to a subscription")
            return SubscriptionResponseWrapper(digest, read(data[start:]) if len(data) > start else None)

        return deserialize


def primary_key_topic(topic: str) -> str:
    """Return the topic name that the serde of primary keys gets, for subscriptions of `topic`. No such topic exists."""
    return f"{topic}-pk"


def foreign_key_topic(topic: str) -> str:
    """Return the topic name that the serde of foreign keys gets."""
    return f"{topic}-fk"


def hashed_value_topic(topic: str) -> str:
    """Return the topic name that the serde of the left table's values gets, for their hashes."""
    return f"{topic}-vh"


def _head(data: bytes, start: int, newest: int, what: str) -> tuple[int, bytes | None, int]:
    """Return the first byte, the hash, and the position after it. `start`: the position of the hash. `newest`: the
    newest version that is known."""
    first = data[0] if data else 0
    if first & _VERSION > newest:
        raise ValueError(
            f"{what} has version {first & _VERSION}, and none above {newest} is known: a newer release wrote it"
        )
    end = start if first & _NO_HASH else start + _HASH_BYTES
    if len(data) < end:
        raise ValueError(f"{what} of {len(data)} bytes is cut off")
    return first, None if first & _NO_HASH else data[start:end], end


def _unused(_: Any) -> Any:
    raise NotImplementedError  # the methods above replace it
