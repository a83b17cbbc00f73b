"""`RangeNamespace` is one task's part of a store's column family: the keys that begin with the task's partition.

    column family:  | partition (4, big-endian) | key of the store |  -> value

*Guarantees*: no key is in two ranges. Entries are in the order of the store's own keys. A closed namespace raises
`StateError`, even in a scan that began before. Damage is an error that names the range, or its task.
*Assumes*: only the thread that has the task reads and writes its range. Partitions are below 2^31, as in Kafka.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from milestones.common.errors import MilestonesError, StateCorruptError, StateError

if TYPE_CHECKING:
    from milestones.common.state.engine import Batch, Namespace, Span

T = TypeVar("T")

_PREFIX: Final = struct.Struct(">I")
BYTES: Final = _PREFIX.size
MOST: Final = (1 << 31) - 1
"""The highest partition that a range can have."""


def prefix_of(partition: int) -> bytes:
    """Return the bytes with which all keys of a partition begin. Raises `StateError` for a number that can't be a
    partition of Kafka."""
    if not 0 <= partition <= MOST:
        raise StateError(
            f"partition {partition} has no range of keys: they go from 0 to {MOST}, as Kafka's partitions do; see what "
            "has that number, such as a task's folder in state_dir, and remove it"
        )
    return _PREFIX.pack(partition)


def partition_of(key: bytes) -> int:
    """Return the partition of a key in a column family."""
    return int(_PREFIX.unpack_from(key)[0])


def span_of(partition: int) -> Span:
    """Return the span of all keys of a partition."""
    return prefix_of(partition), _PREFIX.pack(partition + 1)


def prefixed(batch: Batch, prefix: bytes) -> dict[bytes, bytes | None]:
    """Return the batch with the prefix in front of each key."""
    return {prefix + key: value for key, value in batch.items()}


DamageReporter = Callable[[StateCorruptError, Callable[[], bool]], MilestonesError]
"""Turns a `StateCorruptError` that a read has met into the error to raise. The second argument is a function. It
returns False if the database was replaced since the read began, so that the damage isn't in the current one."""


def unchanged(error: StateCorruptError, _: Callable[[], bool]) -> MilestonesError:
    """Return the error unchanged."""
    return error


def _still(cell: list[T], content: T) -> Callable[[], bool]:
    """Return a function that says whether the cell still has this content."""
    return lambda: cell[0] is content


class RangeNamespace:
    """See `Namespace`. `offset` returns the changelog offset of this range. `report_damage` is called when a read meets
    damage. `ranges` returns how many ranges the column family has.

    *Concurrency*: when a database is replaced, another thread changes the column family (`rebase`) during reads. A scan
    ends in the database in which it began."""

    name: str
    get: Callable[[bytes], bytes | None]

    def __init__(
        self,
        name: str,
        family: Namespace,
        partition: int,
        offset: Callable[[], int | None],
        report_damage: DamageReporter = unchanged,
        ranges: Callable[[], int] = lambda: 1,
    ) -> None:
        self.name, self.partition = name, partition
        self._offset, self._report_damage, self._ranges = offset, report_damage, ranges
        self._prefix, (self._first, self._beyond) = prefix_of(partition), span_of(partition)
        self._reader: list[Callable[[bytes], bytes | None]] = [family.get]
        self._family: list[Namespace] = [family]
        self._scan_bounded = family.reader(self._beyond)
        self._siblings: weakref.WeakSet[RangeNamespace] = weakref.WeakSet()
        self._lost: StateCorruptError | None = None
        self._closed = False
        reader, prefix = self._reader, self._prefix

        def get(key: bytes) -> bytes | None:
            read = reader[0]
            try:
                return read(prefix + key)
            except StateCorruptError as error:
                raise report_damage(error, _still(reader, read)) from error

        self.get = get

    def rebase(self, family: Namespace) -> None:
        """Read from this column family, of another database, from now on."""
        self._scan_bounded = family.reader(self._beyond)  # before `_family`: else damage would seem to be in `family`
        self._family[0], self._lost = family, None
        self._reader[0] = family.get
        if self._closed:  # `close` may have been called since the line above
            self._reader[0] = self._refuse
        for sibling in list(self._siblings):
            sibling.rebase(family)

    def lose(self, error: StateCorruptError) -> None:
        """Refuse all reads with this error, until the store is emptied."""
        self._lost, self._reader[0] = error, self._refuse
        for sibling in list(self._siblings):
            sibling.lose(error)

    def _span(self, start: bytes | None, end: bytes | None) -> Span:
        return self._prefix + (start or b""), self._beyond if end is None else self._prefix + end

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self._must_be_readable()
        family = self._family[0]
        current = _still(self._family, family)
        try:
            return self._stripped(family.scan(*self._span(start, end), reverse=reverse), current)
        except StateCorruptError as error:
            raise self._report_damage(error, current) from error

    def _stripped(
        self, found: Iterator[tuple[bytes, bytes]], current: Callable[[], bool]
    ) -> Iterator[tuple[bytes, bytes]]:
        try:
            for key, value in found:
                self._must_be_open()
                yield key[BYTES:], value
        except StateCorruptError as error:
            raise self._report_damage(error, current) from error

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self._must_be_readable()
        family, prefix = self._family[0], self._prefix
        try:
            return [(key[BYTES:], value) for key, value in self._scan_bounded(prefix + start, prefix + end, limit)]
        except StateCorruptError as error:
            raise self._report_damage(error, _still(self._family, family)) from error

    def reader(self, beyond: bytes | None = None) -> Callable[[bytes, bytes, int], list[tuple[bytes, bytes]]]:
        family, asked = self._family[0], (self._offset, self._report_damage, self._ranges)
        sibling = RangeNamespace(self.name, family, self.partition, *asked)
        self._siblings.add(sibling)
        if self._lost is not None:
            sibling.lose(self._lost)
        if self._closed:
            sibling.close()
        return sibling.scan_bounded

    def offset(self) -> int | None:
        return self._offset()

    def approximate_entries(self) -> int:
        """Return an equal share of the column family's entries: RocksDB can't count those of one range."""
        return self._family[0].approximate_entries() // max(1, self._ranges())

    def close(self) -> None:
        """Refuse all calls from now on. Harmless when repeated."""
        self._closed, self._reader[0] = True, self._refuse
        for sibling in list(self._siblings):
            sibling.close()

    def _must_be_open(self) -> None:
        if self._closed:
            raise self.closed()

    def _must_be_readable(self) -> None:
        self._must_be_open()
        if self._lost is not None:
            raise self._again(self._lost)

    def _refuse(self, key: bytes) -> bytes | None:
        self._must_be_readable()
        raise self.closed()

    @staticmethod
    def _again(lost: StateCorruptError) -> StateCorruptError:
        """Make a new error with the same text. An error that is raised twice would keep the stack frames of both."""
        return StateCorruptError(str(lost), lost.damaged)

    def closed(self) -> StateError:
        """Make the error of a call to a closed range."""
        return StateError(
            f"store {self.name!r} of partition {self.partition} was closed: its task was closed, moved, or "
            "its store is being rebuilt"
        )
