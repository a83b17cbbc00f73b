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
from milestones.common.state.stores.rows import Rows, TimedRows, after_prefix
from milestones.common.type_variables import K, V

log: Final = logging.getLogger(__name__)


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

    __slots__ = ()

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
