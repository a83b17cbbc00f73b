"""The bytes of a table's update (new, old) in a repartition topic: the format of Kafka Streams (KIP-904).

| last byte | before it |
|---|---|
| 0 | old value |
| 1 | new value |
| 2 | length of the new value (varint), new value, old value |
| 3, 4, 5 | as 0, 1, 2, but one more byte before the last one says whether the update is the latest (versioned tables) |

*Guarantees*: formats 0 to 2 are written, as Kafka Streams does. All formats are read. An update that isn't the latest
is read as a `StaleChange`.
*Assumes*: at least one of the two values isn't None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milestones.common.records import Change, StaleChange
from milestones.common.serdes import Serde
from milestones.common.varint import read_varint, varint


class ChangeSerde(Serde[Any]):
    """Serde of updates (new value, old value). `inner`: the serde of the values."""

    __slots__ = ("inner",)

    def __init__(self, inner: Serde[Any]) -> None:
        super().__init__(_unused, _unused, name=f"CHANGE({inner.name})")
        self.inner: Serde[Any] = inner

    def serializer(self, topic: str) -> Callable[[Any], bytes]:
        write = self.inner.serializer(topic)

        def serialize(change: Change) -> bytes:
            new, old = change
            if new is None:
                if old is None:
                    raise ValueError("a table's update needs a new or an old value")
                return write(old) + b"\x00"
            if old is None:
                return write(new) + b"\x01"
            data = write(new)
            return b"".join((varint(len(data)), data, write(old), b"\x02"))

        return serialize

    def deserializer(self, topic: str) -> Callable[[bytes], Any]:
        read = self.inner.deserializer(topic)

        def deserialize(data: bytes) -> Change:
            flag = data[-1]
            if flag > 5:
                raise ValueError(f"{flag} is no format of a table's update")
            if flag < 3:
                return values(flag, data, -1)
            change = values(flag - 3, data, -2)
            return change if _latest(data[-2]) else StaleChange(change)

        def values(kind: int, data: bytes, end: int) -> Change:
            if kind == 0:
                return None, read(data[:end])
            if kind == 1:
                return read(data[:end]), None
            length, start = read_varint(data)
            middle = start + length
            if not start <= middle <= len(data) + end:
                raise ValueError(f"a new value of {length} bytes in {len(data)} bytes")
            return read(data[start:middle]), read(data[middle:end])

        return deserialize


def _latest(flag: int) -> bool:
    if flag > 1:
        raise ValueError(f"{flag} doesn't say whether an update is the latest")
    return flag == 1


def _unused(_: Any) -> Any:
    raise NotImplementedError  # the two methods above replace it
