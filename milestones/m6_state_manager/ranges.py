"""One task's part of a store's column family: the keys that begin with the task's partition.

    column family:  | partition (4, big-endian) | key of the store |  -> value

*Guarantees*: a range has no key of another one. Entries are in the order of the store's own keys. A namespace that was
closed raises `StateError`, also a scan that began before.
*Assumes*: the range's holder reads and writes it; partitions are below 2^31, as Kafka's are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateError

if TYPE_CHECKING:
    from milestones.common.state.engine import Batch, Namespace, Span

_PREFIX: Final = struct.Struct(">I")
BYTES: Final = _PREFIX.size
MOST: Final = (1 << 31) - 1
"""The highest partition that a range can have."""


def prefix_of(partition: int) -> bytes:
    """What the keys of a partition begin with. `StateError` for a number that Kafka doesn't give."""
    if not 0 <= partition <= MOST:
        raise StateError(f"partition {partition} has no range of keys: they go from 0 to {MOST}")
    return _PREFIX.pack(partition)


def partition_of(key: bytes) -> int:
    """The partition of a key of a column family."""
    return int(_PREFIX.unpack_from(key)[0])


def span_of(partition: int) -> Span:
    """All keys of a partition."""
    return prefix_of(partition), _PREFIX.pack(partition + 1)


def prefixed(batch: Batch, prefix: bytes) -> dict[bytes, bytes | None]:
    """The batch with the prefix in front of each key."""
    return {prefix + key: value for key, value in batch.items()}


class RangeNamespace:
    """See `Namespace`. `offset`: asked for the changelog offset of this range."""

    name: str
    get: Callable[[bytes], bytes | None]

    def __init__(self, name: str, family: Namespace, partition: int, offset: Callable[[], int | None]) -> None:
        self.name = name
        self._family, self._few, self._offset = family, family.reader(), offset
        self._prefix, (self._first, self._beyond) = prefix_of(partition), span_of(partition)
        self._reader: list[Callable[[bytes], bytes | None]] = [family.get]
        self._closed = False
        reader, prefix = self._reader, self._prefix

        def get(key: bytes) -> bytes | None:
            return reader[0](prefix + key)

        self.get = get

    def _span(self, start: bytes | None, end: bytes | None) -> Span:
        return self._prefix + (start or b""), self._beyond if end is None else self._prefix + end

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self._must_be_open()
        return self._stripped(self._family.scan(*self._span(start, end), reverse=reverse))

    def _stripped(self, found: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for key, value in found:
            self._must_be_open()
            yield key[BYTES:], value

    def few(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self._must_be_open()
        return [(key[BYTES:], value) for key, value in self._few(*self._span(start, end), limit)]

    def reader(self) -> Callable[[bytes, bytes, int], list[tuple[bytes, bytes]]]:
        return RangeNamespace(self.name, self._family, partition_of(self._prefix), self._offset).few

    def offset(self) -> int | None:
        return self._offset()

    def approximate_entries(self) -> int:
        """The entries of all ranges, in which there is no telling them apart."""
        return self._family.approximate_entries()

    def close(self) -> None:
        """Refuse all calls from now on. Harmless when repeated."""
        self._closed, self._reader[0] = True, self._refuse

    def _must_be_open(self) -> None:
        if self._closed:
            raise self.closed()

    def _refuse(self, key: bytes) -> bytes | None:
        raise self.closed()

    def closed(self) -> StateError:
        """The error of a call to a closed range."""
        return StateError(
            f"store {self.name!r} of partition {partition_of(self._prefix)} was closed: its task was closed, moved, or "
            "its store is being rebuilt"
        )
