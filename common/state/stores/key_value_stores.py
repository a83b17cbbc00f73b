"""Key-value stores as user code and operators see them. The types of keys and values are those of the store's serdes.

*Guarantees*: a range shows the entries at the time of the call, uncommitted writes included, in the order of the
serialised keys. All other guarantees are those of `rows.py`.
*Assumes*: as `rows.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from milestones.common.errors import SerializationError
from milestones.common.state.layers import ABSENT
from milestones.common.state.stores.rows import Rows, TimedRows, after_prefix
from milestones.common.type_variables import K, V

log: Final = logging.getLogger(__name__)


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and its timestamp in ms since the epoch."""

    value: V
    timestamp: int


class KeyValueStore(Rows[K, V]):
    """Values by key. The store is open from the task's start to its close: at other times each call raises
    `StateError`."""

    __slots__ = ()

    if TYPE_CHECKING:  # at run time, `get` and `put` are the methods themselves, which saves one call

        def get(self, key: K) -> V | None:
            """Return the value of `key`, None if it is absent."""

        def put(self, key: K, value: V | None) -> None:
            """Set the value of `key`. None deletes the key."""

    else:
        get, put = Rows._get_row, Rows._put_row

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Set the value of `key` if the key has none. Returns the value that the key had before, None if it had
        none."""
        existing = self.get(key)
        if existing is None:
            self.put(key, value)
        return existing

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Put each (key, value) of `entries`."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> V | None:
        """Delete `key`. Returns its former value, None if it had none."""
        existing = self.get(key)
        self.put(key, None)
        return existing

    # -- many keys

    def range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """Yield the entries with start <= key <= end (None: no bound), in the order of the serialised keys."""
        return self._range(start, end, reverse=False)

    def reverse_range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """Yield the entries of `range`, the last one first."""
        return self._range(start, end, reverse=True)

    def all(self) -> Iterator[tuple[K, V]]:
        """Yield every entry, in the order of the serialised keys."""
        return self._range(None, None, reverse=False)

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """Yield every entry, the last one first."""
        return self._range(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, serializer: Callable[[Any], bytes] | None = None) -> Iterator[tuple[K, V]]:
        """Yield the entries whose serialised key begins with the serialised prefix (KIP-614). Without `serializer`, the
        key's serde serialises the prefix."""
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
    """Values with their time (`ValueAndTimestamp`), by key. Tables and aggregations keep their rows in such a store.

    Operators call `get_raw`, `put_raw` and `delete_raw`, whose rows are plain tuples.
    """

    __slots__ = ()

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        """Return the value of `key` with its time, None if it is absent."""
        row = self.get_raw(key)
        return None if row is None else ValueAndTimestamp(*row)

    def put(self, key: K, value: ValueAndTimestamp[V] | None) -> None:
        """Set the value of `key`. None, or a `ValueAndTimestamp` whose value is None, deletes the key."""
        if value is None:
            self.put_raw(key, None, self._record.timestamp)
        elif isinstance(value, ValueAndTimestamp):
            self.put_raw(key, value.value, value.timestamp)
        else:
            raise SerializationError(
                f"store {self.name} of task {self._task} keeps timestamps: put a ValueAndTimestamp(value, timestamp in "
                f"ms), not a {type(value).__qualname__}"
            )

    # -- rows by the bytes of their keys, for operators that read and write the same row

    def bytes_of(self, key: Any) -> bytes:
        """Serialise a key."""
        return self._key(key, "put")

    def row_of(self, key: Any) -> tuple[bytes, tuple[V, int] | None]:
        """Return the bytes of `key`, and its row (value, timestamp), None if it is absent."""
        try:
            data = self._encode_key(key)
        except Exception as error:
            self._refused(0, key, error)
        value: Any = self._remembered.get(data, ABSENT)
        if value is ABSENT:
            value = self._read(data)
        return data, value if self.immutable or value is None else self._decoded(value)

    if TYPE_CHECKING:  # at run time these are the methods themselves, which saves a call

        def put_row(self, data: bytes, value: V, timestamp: int) -> bytes:
            """Set value and time of the key whose bytes are `data`. The value isn't None. Returns the value's bytes."""

        def delete_row(self, data: bytes, timestamp: int) -> None:
            """Delete the key whose bytes are `data`, at the time `timestamp`."""

    else:
        put_row, delete_row = TimedRows._put_timed, Rows._delete

    def _entries(self, scanned: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        for key, value in scanned:
            yield self._decode_key(key), ValueAndTimestamp(*self._decoded(value))
