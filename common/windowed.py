"""`Windowed`: a key with its time window. The serdes of `Windowed` write the same bytes as Kafka Streams.

| where | bytes |
|---|---|
| a topic, time windows | key, start (8) |
| a topic, sessions | key, end (8), start (8) |
| a window store's changelog | key, start (8), sequence (4) |
| a session store's changelog | key, end (8), start (8) |

*Guarantees*: a serde that knows the size of the windows reads back the window that was written. Without a size, the
window that is read has no end.
*Assumes*: times are ms since the epoch, not negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple

from milestones.common.serdes import Serde
from milestones.common.type_variables import K
from milestones.common.typed_serdes import SerdeLike, of

FOREVER: Final = (1 << 63) - 1
"""The end of a window that has no end."""

AFTER_GRACE, AT_ONCE = "after_grace", "at_once"
"""The values of `stream_join_unmatched`. The setting concerns a record that comes after the end of its window, within
the grace period, and has no partner. It says when the join sends such a record."""

START: Final = struct.Struct(">q")
START_AND_SEQUENCE: Final = struct.Struct(">qi")
END_AND_START: Final = struct.Struct(">qq")


class Windowed(NamedTuple, Generic[K]):
    """A key and its window, from `start` to `end`, in ms since the epoch. A time window excludes its end, a session
    includes it."""

    key: K
    start: int
    end: int


class WindowedSerde(Serde[Windowed[K]]):
    """Serde of `Windowed` keys whose windows have the size `size_ms`, or no end if it is None. `inner`: the serde of
    the keys, or a type that has one."""

    __slots__ = ("inner", "size_ms")

    inner: Serde[K]
    size_ms: int | None
    tail = START

    def __init__(self, inner: SerdeLike[K], size_ms: int | None) -> None:
        inner = of(inner)
        super().__init__(_unused, _unused, name=f"WINDOWED({inner.name})", immutable=inner.immutable)
        self.inner, self.size_ms = inner, size_ms

    def serializer(self, topic: str) -> Callable[[Windowed[K]], bytes]:
        write, pack = self.inner.serializer(topic), START.pack

        def serialize(windowed: Windowed[K]) -> bytes:
            key, start, _ = windowed
            return write(key) + pack(start)

        return serialize

    def deserializer(self, topic: str) -> Callable[[bytes], Windowed[K]]:
        read, size_ms = self.inner.deserializer(topic), self.size_ms

        def deserialize(data: bytes) -> Windowed[K]:
            (start,) = START.unpack_from(data, len(data) - START.size)
            return Windowed(read(data[: -START.size]), start, FOREVER if size_ms is None else start + size_ms)

        return deserialize


class SessionWindowedSerde(Serde[Windowed[K]]):
    """Serde of `Windowed` keys whose windows are sessions. `inner`: the serde of the keys, or a type that has one."""

    __slots__ = ("inner",)

    tail = END_AND_START

    def __init__(self, inner: SerdeLike[K]) -> None:
        inner = of(inner)
        super().__init__(_unused, _unused, name=f"SESSION({inner.name})", immutable=inner.immutable)
        self.inner: Serde[K] = inner

    def serializer(self, topic: str) -> Callable[[Windowed[K]], bytes]:
        write, pack = self.inner.serializer(topic), END_AND_START.pack

        def serialize(windowed: Windowed[K]) -> bytes:
            key, start, end = windowed
            return write(key) + pack(end, start)

        return serialize

    def deserializer(self, topic: str) -> Callable[[bytes], Windowed[K]]:
        read = self.inner.deserializer(topic)

        def deserialize(data: bytes) -> Windowed[K]:
            end, start = END_AND_START.unpack_from(data, len(data) - END_AND_START.size)
            return Windowed(read(data[: -END_AND_START.size]), start, end)

        return deserialize


def _unused(_: Any) -> Any:
    raise NotImplementedError  # the two methods above replace it
