"""The waiting records of a left or an outer join, which have no partner yet, and their serdes. The bytes are those of
Kafka Streams.

| | bytes |
|---|---|
| key | time (8), side (1: left 1, right 0), key |
| value | a list (KIP-466) of: side (1), value |

Rows are sorted by time. Of rows with the same time, those of the right side come first. After that, the bytes of the
keys decide.

*Guarantees*: the two serdes read what they wrote.
*Assumes*: times are not negative. All values of a row are of the row's side.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from milestones.common.serdes import Serde, list_serde

_TIME_AND_SIDE: Final = struct.Struct(">q?")
_RIGHT, _LEFT = b"\x00", b"\x01"


class Unmatched(NamedTuple):
    """The key of waiting records with the same time, side and key. `left`: True for records of the left stream."""

    time: int
    left: bool
    key: Any


Sided = tuple[bool, Any]
"""(True for a value of the left stream, the value)"""


class UnmatchedSerde(Serde[Unmatched]):
    """The serde of the keys of rows with waiting records. `inner`: the serde of the records' keys."""

    __slots__ = ("inner",)

    def __init__(self, inner: Serde[Any]) -> None:
        super().__init__(_unused, _unused, name=f"UNMATCHED({inner.name})")
        self.inner: Serde[Any] = inner

    def serializer(self, topic: str) -> Callable[[Unmatched], bytes]:
        write, pack = self.inner.serializer(topic), _TIME_AND_SIDE.pack

        def serialize(row: Unmatched) -> bytes:
            time, left, key = row
            return pack(time, left) + write(key)

        return serialize

    def deserializer(self, topic: str) -> Callable[[bytes], Unmatched]:
        read, unpack, size = self.inner.deserializer(topic), _TIME_AND_SIDE.unpack_from, _TIME_AND_SIDE.size

        def deserialize(data: bytes) -> Unmatched:
            time, left = unpack(data)
            return Unmatched(time, left, read(data[size:]))

        return deserialize


class SidedSerde(Serde[Sided]):
    """The serde of a record's value with its side (left or right)."""

    __slots__ = ("left", "right")

    left: Serde[Any]
    right: Serde[Any]

    def __init__(self, left: Serde[Any], right: Serde[Any]) -> None:
        super().__init__(_unused, _unused, name=f"{left.name} OR {right.name}")
        self.left, self.right = left, right

    def serializer(self, topic: str) -> Callable[[Sided], bytes]:
        write_left, write_right = self.left.serializer(topic), self.right.serializer(topic)

        def serialize(sided: Sided) -> bytes:
            left, value = sided
            return _LEFT + write_left(value) if left else _RIGHT + write_right(value)

        return serialize

    def deserializer(self, topic: str) -> Callable[[bytes], Sided]:
        read_left, read_right = self.left.deserializer(topic), self.right.deserializer(topic)

        def deserialize(data: bytes) -> Sided:
            left = data[:1] == _LEFT
            return left, (read_left if left else read_right)(data[1:])

        return deserialize


def unmatched_values(left: Serde[Any], right: Serde[Any]) -> Serde[list[Sided | None]]:
    """Make the serde of the rows' values."""
    return list_serde(SidedSerde(left, right))


def _unused(_: Any) -> Any:
    raise NotImplementedError  # the methods above replace it
