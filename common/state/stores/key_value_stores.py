"""Key-value stores as user code and operators see them, typed by serdes.

*Guarantees*: ranges are in the order of the serialised keys, as of their call, with the store's own uncommitted
writes; the others are those of `rows.py`.
*Assumes*: as `rows.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from milestones.common.errors import SerializationError
from milestones.common.state.changelog import TIMESTAMP, TIMESTAMP_BYTES
from milestones.common.state.layers import ABSENT
from milestones.common.state.stores.rows import Rows, StoreParts, TimedRows, after_prefix
from milestones.common.type_variables import K, V

log: Final = logging.getLogger(__name__)

NO_ROW: Final = ABSENT, b"", ABSENT, b""

_unpack = TIMESTAMP.unpack_from


class LastRow:
    """The row that a store was given last, and its bytes: for a sink to which the giver sends that very row at once.
    `row`: key, the key's bytes, value, the value's bytes. The sink leaves `NO_ROW`, so that no row is kept alive."""

    __slots__ = ("row",)

    def __init__(self) -> None:
        self.row: tuple[Any, bytes, Any, bytes] = NO_ROW


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the time it is from, ms since the epoch."""

    value: V
    timestamp: int


class KeyValueStore(Rows[K, V]):
    """Values by key. Opened by its task: before that and after its close every call is a `StateError`."""

    __slots__ = ()

    if TYPE_CHECKING:  # a call less

        def get(self, key: K) -> V | None:
            """The value of `key`, None when absent."""

        def put(self, key: K, value: V | None) -> None:
            """Set the value of `key`; None deletes."""

    else:
        get, put = Rows._get_row, Rows._put_row

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Set the value of `key` unless the key has one; returns the present value, else None."""
        existing = self.get(key)
        if existing is None:
            self.put(key, value)
        return existing

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Put each (key, value)."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> V | None:
        """Remove `key`, and return its former value, else None."""
        existing = self.get(key)
        self.put(key, None)
        return existing

    # -- many keys

    def range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """Entries with start <= key <= end in the order of the serialised keys; None: unbounded."""
        return self._range(start, end, reverse=False)

    def reverse_range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """`range`, last first."""
        return self._range(start, end, reverse=True)

    def all(self) -> Iterator[tuple[K, V]]:
        """Every entry, in the order of the serialised keys."""
        return self._range(None, None, reverse=False)

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """`all`, last first."""
        return self._range(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, serializer: Callable[[Any], bytes] | None = None) -> Iterator[tuple[K, V]]:
        """Entries whose serialised key begins with the serialised prefix (KIP-614), by default by the key's serde."""
        start = self._key(prefix, "prefix_scan") if serializer is None else serializer(prefix)
        return self._scan_rows(start, after_prefix(start))

    def _range(self, start: K | None, end: K | None, *, reverse: bool) -> Iterator[tuple[K, V]]:
        self._check_open()
        first = None if start is None else self._key(start, "range")
        last = None if end is None else self._key(end, "range")
        if first is not None and last is not None and first > last:
            log.warning(
                "store %s: the range from %r to %r is empty, as its serialised start is greater than its end. "
                "Numeric serdes order negative numbers after positive ones",
                self.name, start, end,
            )  # fmt: skip
            return iter(())
        beyond = None if last is None else last + b"\x00"  # the least key that is greater
        return self._scan_rows(first, beyond, reverse=reverse)


class TimestampedKeyValueStore(TimedRows[K, ValueAndTimestamp[V]], KeyValueStore[K, ValueAndTimestamp[V]]):
    """Values with their time, `ValueAndTimestamp`, by key. Tables and aggregations keep their rows in it.

    Inside, and for operators (`get_raw`, `put_raw`, `delete_raw`), a row is a plain tuple.
    """

    __slots__ = ("_decode_bare", "_last_row")

    def __init__(self, parts: StoreParts) -> None:
        self._last_row: LastRow | None = None
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        self._decode_bare = self._serdes[1].deserializer(self._topic)

    def get_raw(self, key: K) -> Any:
        """(value, timestamp) of a key, None when absent. In one frame: calls would cost as much as their work."""
        if key is None:
            raise self._no_key("get")
        try:
            data = self._encode_key(key)
        except Exception as error:
            self._refused(0, key, error)
        row: Any = self._remembered.get(data, ABSENT)
        if row is ABSENT:
            row = self._read(data)
        if self._immutable or row is None:
            return row
        try:
            return self._decode_bare(row[TIMESTAMP_BYTES:]), _unpack(row)[0]
        except Exception as error:
            self._unreadable(row, error)

    def put_raw(self, key: Any, value: Any, timestamp: int) -> None:
        """Set value and time of `key`; a value of None deletes."""
        if key is None:
            raise self._no_key("put")
        try:
            data = self._encode_key(key)
        except Exception as error:
            self._refused(0, key, error)
        encoded = self._put_timed(data, value, timestamp)
        if self._last_row is not None and encoded is not None:
            self._last_row.row = key, data, value, encoded

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        """The value of `key` with its time, None when absent."""
        row = self.get_raw(key)
        return None if row is None else ValueAndTimestamp(*row)

    def put(self, key: K, value: ValueAndTimestamp[V] | None) -> None:
        """Set the value of `key`, a `ValueAndTimestamp`; None, or one without a value, deletes."""
        if value is None:
            self.put_raw(key, None, self._record.timestamp)
        elif isinstance(value, ValueAndTimestamp):
            self.put_raw(key, value.value, value.timestamp)
        else:
            raise SerializationError(
                f"store {self.name} of task {self._task} keeps timestamps: put a ValueAndTimestamp(value, timestamp in "
                f"ms), not a {type(value).__qualname__}"
            )

    def _entries(self, scanned: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        for key, value in scanned:
            yield self._decode_key(key), ValueAndTimestamp(*self._decoded(value))


def last_row_by(
    store: TimestampedKeyValueStore[Any, Any], key: Callable[[Any], bytes], value: Callable[[Any], bytes]
) -> LastRow | None:
    """What has the store's last row from now on; None unless these are the functions that make its bytes, or when the
    store is cached: then rows are sent by flushes."""
    own_key, own_value = store._serdes
    same = own_key.serializer(store._topic) is key and own_value.serializer(store._topic) is value
    if store.buffer is not None or not same:
        return None
    store._last_row = store._last_row or LastRow()
    return store._last_row
