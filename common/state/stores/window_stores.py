"""Window stores as user code and operators see them. A row's key is a key and the start of a window.

*Guarantees*: as `segmented_rows.py`. The time of a row is the start of its window.
*Assumes*: as `rows.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, overload

from milestones.common.errors import SerializationError
from milestones.common.state.layers import ABSENT
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.key_views import FEW
from milestones.common.state.stores.rows import StoreParts, TimedRows
from milestones.common.state.stores.segmented_rows import HEAD, SegmentedRows
from milestones.common.state.stores.sequences import LAST_SEQUENCE, Sequences
from milestones.common.state.stores.window_layouts import SEGMENT, WINDOWS, TimeOrder
from milestones.common.type_variables import K, V
from milestones.common.windowed import FOREVER, START_AND_SEQUENCE, Windowed

_pack = START_AND_SEQUENCE.pack

Row = tuple[Any, int, int]
"""(key, start of the window, sequence number): the full key of a row."""


def _no_sequence(_: Any) -> int:
    """Return the sequence number of all values of a store without duplicates."""
    return 0


class _WindowRows(SegmentedRows[K, V]):
    """Rows by key, start and sequence number. `window_ms`: the size of the windows, None for windows without an end."""

    __slots__ = ("_duplicates", "_next_sequence", "_sequences", "window_ms")

    tail: ClassVar[struct.Struct] = START_AND_SEQUENCE
    order: ClassVar[TimeOrder] = WINDOWS
    most_tail: ClassVar[bytes] = START_AND_SEQUENCE.pack(FOREVER, LAST_SEQUENCE)

    def __init__(self, parts: StoreParts) -> None:
        self._duplicates = parts.spec.duplicates
        self._next_sequence: Callable[[Any], int] = _no_sequence
        """Returns the sequence number of a put."""
        if self._duplicates:
            self._sequences = Sequences(parts.spec.name, parts.cells)
            self._next_sequence = self._sequences.following
        self.window_ms: int | None = parts.spec.window_ms or None
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        encode, decode, segment_ms, size_ms = self._encode_key, self._decode_key, self._segment_ms, self.window_ms
        segment, pack, unpack, length = SEGMENT.pack, self.tail.pack, self.tail.unpack_from, self.tail.size

        def encode_row(row: Row) -> bytes:
            key, start, sequence = row
            return segment(start // segment_ms) + encode(key) + pack(start, sequence)

        def decode_row(local: bytes) -> Windowed[Any]:
            start = unpack(local, len(local) - length)[0]
            return Windowed(decode(local[HEAD:-length]), start, FOREVER if size_ms is None else start + size_ms)

        self._encode_key, self._decode_key = encode_row, decode_row

    def _views_from_start(self) -> bool:
        return self._duplicates

    def _last_sequence(self) -> int:
        """Return the sequence number of the value that was put last."""
        return self._sequences.last() if self._duplicates else 0

    def _of(
        self, key: Any, call: str, first: int, last: int, *, reverse: bool = False
    ) -> Iterable[tuple[bytes, bytes]]:
        """Return local keys and values of the rows of `key` whose start is from `first` to `last` (both included), at
        the time of this call."""
        data = self._key_alone(key, call)
        first, last = self._visible_from(first), min(last, FOREVER - 1)
        if last < first:
            return ()
        tails = self.tail.pack(first, 0), self.tail.pack(last, LAST_SEQUENCE)
        return self._of_key(data, (first, last), tails, reverse=reverse)

    def _rows(
        self, call: str, first_key: Any, last_key: Any, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield the rows whose key is from `first_key` to `last_key` (both included, None: no bound), and whose start
        is from `first` to `last` (both included)."""
        keys = self._keys(first_key, last_key, call)
        first, last = self._visible_from(first), min(last, FOREVER - 1)
        tails = self.tail.pack(first, 0), self.tail.pack(max(0, last), LAST_SEQUENCE)
        return self._found(keys, (first, last), tails, lambda start, _: first <= start <= last, reverse=reverse)


class WindowStore(_WindowRows[K, V]):
    """Values by key and start of a window."""

    __slots__ = ()

    def put(self, key: K, value: V | None, start: int) -> bool:
        """Set the value of `key` in the window that starts at `start` (ms). None deletes the value. A store of
        duplicates adds one more value instead, and ignores None. Returns False, and puts nothing, if all windows of the
        same segment have expired."""
        self._given(key, "put")
        if self._duplicates:
            return self.put_encoded(key, self.encode(value), start)
        if not self._may_put(start):
            return False
        place = self._place((key, start, self._next_sequence(value)))
        self._put_at(place, value)
        if value is not None:
            self._note_place(place, self._layers.get(place))
        if self._closing:
            self._note_closing(place, there=value is not None)
        return True

    def encode(self, value: V | None) -> bytes | None:
        """Serialise a value for `put_encoded`. None stays None."""
        if value is None:
            return None
        try:
            return self._encode_value(value)
        except Exception as error:
            self._refused(1, value, error)

    def put_encoded(self, key: K, data: bytes | None, start: int) -> bool:
        """Put a value that `encode` has serialised into a store of duplicates. Returns as `put`."""
        sequence = self._next_sequence(data)
        if data is None:
            return True
        observed = self._observed
        now = observed.value
        if start > now:
            now = start
            observed.set(start)
        elif start < now and not self._may_put(start):
            return False
        try:
            own = self._encode_alone(key)
            place = self._head(start) + own + _pack(start, sequence)
        except Exception as error:
            self._refused(0, key, error)
        self._log(place, data, self._record.timestamp)
        self._layers.put(place, data)
        if not self._duplicates:  # values of duplicates aren't remembered
            self._read_cache.forget_value(place)
        if start > self._highest:
            self._highest = start
        views = None if self._view_cache is None else self._view_cache.views
        row = [start, sequence, place, data, ABSENT]
        if views is not None and views.write(own, row, now - self._retention_ms + 1):
            self._turn(views)
        return True

    @overload
    def fetch(self, key: K, first: int) -> V | None: ...

    @overload
    def fetch(self, key: K, first: int, last: int) -> Iterator[tuple[int, V]]: ...

    def fetch(self, key: K, first: int, last: int | None = None) -> V | Iterator[tuple[int, V]] | None:
        """Return the value of `key` in the window that starts at `first`, None if it is absent. In a store of
        duplicates this finds only the value that this process has put last into the store. With `last`, return an
        iterator of (start, value) over the windows of `key` that start from `first` to `last`, both included, in the
        order of time."""
        self._given(key, "fetch")
        if last is None:
            if first < max(0, self._earliest):
                return None
            row: Any = (key, first, self._last_sequence())
            return self._read_alone(row) if self._duplicates else self._get_row(row)
        return self._starts(self._of(key, "fetch", first, last))

    def _read_alone(self, row: Row) -> V | None:
        """Return the value of a row. It isn't remembered, as joins read ranges of rows."""
        data = self._layers.get(self._place(row))
        return None if data is None else self._decoded(data)

    def rows_between(self, key: Any, first: int, last: int) -> list[tuple[int, V]]:
        """Return (start, value) of the rows of `key` that start from `first` to `last`, both included. For joins."""
        try:
            data = self._encode_alone(key)
        except Exception as error:
            self._refused(0, key, error)
        gone = self._observed.value - self._retention_ms
        if first <= gone:
            first = gone + 1
        if first < 0:
            first = 0
        cache = self._view_cache
        views = None if cache is None else cache.views
        view = None if views is None else views.young.get(data) or views.find(data)
        if view is None or view.since > first:
            if view is None and views is not None and first >= views.since:
                return []
            view = self._view(data, first)
            if view is None:
                return list(self._rows_by_start(self._of(key, "fetch", first, last)))
        found: list[tuple[int, V]] = []
        rows, decode, immutable = view.rows, self._decode_value, self.immutable
        for row in rows if len(rows) <= FEW else view.between(first, last):  # of few rows, a bisection costs more
            start = row[0]
            if start >= first:
                if start > last:
                    break
                if immutable:
                    value = row[4]
                    found.append((start, self._value_of(row) if value is ABSENT else value))
                    continue
                try:
                    found.append((start, decode(row[3])))
                except Exception as error:
                    self._unreadable(row[3], error)
        return found

    def backward_fetch(self, key: K, first: int, last: int) -> Iterator[tuple[int, V]]:
        """Yield (start, value) of the windows of `key` that start from `first` to `last`, the last one first."""
        return self._starts(self._of(key, "backward_fetch", first, last, reverse=True))

    def fetch_range(
        self, first_key: K | None, last_key: K | None, first: int, last: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (windowed key, value) of all keys from `first_key` to `last_key` (both included, None: no bound), and
        of all windows that start from `first` to `last`."""
        return self._shown(self._rows("fetch_range", first_key, last_key, first, last))

    def backward_fetch_range(
        self, first_key: K | None, last_key: K | None, first: int, last: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the rows of `fetch_range`, the last one first."""
        return self._shown(self._rows("fetch_range", first_key, last_key, first, last, reverse=True))

    def fetch_all(self, first: int, last: int) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (windowed key, value) of all keys, and of all windows that start from `first` to `last`."""
        return self._shown(self._rows("fetch_all", None, None, first, last))

    def backward_fetch_all(self, first: int, last: int) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the rows of `fetch_all`, the last one first."""
        return self._shown(self._rows("fetch_all", None, None, first, last, reverse=True))

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        """Yield every row that hasn't expired."""
        return self.fetch_all(0, FOREVER - 1)

    def backward_all(self) -> Iterator[tuple[Windowed[K], V]]:
        """Yield every row that hasn't expired, the last one first."""
        return self.backward_fetch_all(0, FOREVER - 1)

    def _shown(self, rows: Iterator[tuple[Windowed[K], V]]) -> Iterator[tuple[Windowed[K], V]]:
        """Turn the values of rows into those that user code sees."""
        return rows

    def _starts(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[int, V]]:
        """Turn local rows into (start, value), with the values that user code sees."""
        return self._rows_by_start(rows)

    def _rows_by_start(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[int, Any]]:
        unpack, length, decoded = self.tail.unpack_from, self.tail.size, self._decoded
        for local, value in rows:
            yield unpack(local, len(local) - length)[0], decoded(value)


class TimestampedWindows(TimedRows[K, V], WindowStore[K, V]):
    """Rows with their time, by key and start of a window. Operators call `row_of` and `put_row`, or `fetch_raw` and
    `put_window`, whose rows are plain tuples. User code gets values of the type `V`."""

    __slots__ = ()

    def bytes_of(self, key: Any) -> bytes:
        """Serialise `key`, for `row_of`."""
        try:
            return self._encode_alone(key)
        except Exception as error:
            self._refused(0, key, error)

    def row_of(self, key: bytes, start: int) -> tuple[bytes, tuple[Any, int] | None]:
        """Return the local key of the window of a serialised key that starts at `start`, and (value, timestamp) of its
        row. The second is None if the row is absent or has expired."""
        head = self._of_segment if self._begins <= start < self._ends else self._head(start)
        place = head + key + _pack(start, 0)
        if start <= self._observed.value - self._retention_ms:
            return place, None
        row: Any = self._remembered.get(place, ABSENT)
        if row is ABSENT or not self.immutable:
            row = self._row_at(place)
        return place, row

    def put_row(self, place: bytes, value: Any, timestamp: int, start: int) -> bytes | None:
        """Set value and time of the row at a local key of `row_of`. The value isn't None. Returns the value's bytes.
        Returns None, and sets nothing, if all windows of the same segment have expired."""
        observed = self._observed.value
        if start != observed:
            # An earlier row that hasn't expired needs no division.
            earlier = observed - self._retention_ms < start < observed
            if not earlier and not self._may_put(start):
                return None
        encoded = self._put_timed(place, value, timestamp)
        if start > self._highest:
            self._highest = start
        cache = self._view_cache
        if cache is not None and cache.views is not None:
            self._note_place(place, self._layers.get(place))
        if self._closing:
            self._note_closing(place, there=True)
        return encoded

    def fetch_raw(self, key: Any, start: int) -> tuple[Any, int] | None:
        """Return (value, timestamp) of `key` in the window that starts at `start`, None if it is absent."""
        place = self._place((key, start, 0))
        row: Any = self._row_at(place) if start > self._observed.value - self._retention_ms else None
        return row  # type: ignore[no-any-return]  # of the value serde's type, and a time

    def get_raw(self, windowed: Any) -> Any:
        """Return (value, timestamp) of a windowed key (`Windowed`), None if it is absent."""
        return self.fetch_raw(windowed.key, windowed.start)

    def rows(self, key: Any, first: int, last: int) -> Iterator[tuple[int, tuple[Any, int]]]:
        """Yield (start, (value, timestamp)) of the windows of `key` that start from `first` to `last`, ascending."""
        return self._rows_by_start(self._of(key, "fetch", first, last))

    def backward_rows(self, key: Any, first: int, last: int) -> Iterator[tuple[int, tuple[Any, int]]]:
        """Yield the rows of `rows`, the last one first."""
        return self._rows_by_start(self._of(key, "fetch", first, last, reverse=True))

    def put_window(self, key: Any, value: Any, timestamp: int, start: int) -> bool:
        """Set value and time of `key` in the window that starts at `start`. The value None deletes the row, at the time
        `timestamp`. Returns False, and puts nothing, if all windows of the same segment have expired."""
        place = self._place((key, start, 0))
        if value is not None:
            return self.put_row(place, value, timestamp, start) is not None
        if not self._may_put(start):
            return False
        self._delete(place, timestamp)
        if self._closing:
            self._note_closing(place, there=False)
        return True


class TimestampedWindowStore(TimestampedWindows[K, ValueAndTimestamp[V]]):
    """Values with their time (`ValueAndTimestamp`), by key and start of a window. Windowed aggregations keep their rows
    in such a store."""

    __slots__ = ()

    def put(self, key: K, value: ValueAndTimestamp[V] | None, start: int) -> bool:
        """Set the value of `key` in the window that starts at `start`. None, or a `ValueAndTimestamp` whose value is
        None, deletes the value. Returns False, and puts nothing, if all windows of the same segment have expired."""
        self._given(key, "put")
        if value is None:
            return self.put_window(key, None, self._record.timestamp, start)
        if isinstance(value, ValueAndTimestamp):
            return self.put_window(key, value.value, value.timestamp, start)
        raise SerializationError(
            f"store {self.name} of task {self._task} keeps timestamps: put a ValueAndTimestamp(value, timestamp in "
            f"ms), not a {type(value).__qualname__}"
        )

    @overload
    def fetch(self, key: K, first: int) -> ValueAndTimestamp[V] | None: ...

    @overload
    def fetch(self, key: K, first: int, last: int) -> Iterator[tuple[int, ValueAndTimestamp[V]]]: ...

    def fetch(
        self, key: K, first: int, last: int | None = None
    ) -> ValueAndTimestamp[V] | Iterator[tuple[int, ValueAndTimestamp[V]]] | None:
        """Return what `WindowStore.fetch` returns, with a `ValueAndTimestamp` for each value."""
        self._given(key, "fetch")
        if last is not None:
            return self._starts(self._of(key, "fetch", first, last))
        row = self.fetch_raw(key, first)
        return None if row is None else ValueAndTimestamp(*row)

    def _shown(
        self, rows: Iterator[tuple[Windowed[Any], Any]]
    ) -> Iterator[tuple[Windowed[K], ValueAndTimestamp[V]]]:
        return ((windowed, ValueAndTimestamp(*row)) for windowed, row in rows)

    def _starts(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[int, ValueAndTimestamp[V]]]:
        return ((start, ValueAndTimestamp(*row)) for start, row in self._rows_by_start(rows))
