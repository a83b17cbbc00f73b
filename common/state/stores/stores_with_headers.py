"""Stores that keep a record's headers with each value (KIP-1271), as user code and operators see them.

*Guarantees*: those of the kinds without headers. As in Kafka Streams, user code reads and writes headers, and operators
read and write rows without headers. The deletion of a row is logged with the headers of the current record.
*Assumes*: as `rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, overload

from milestones.common.errors import SerializationError
from milestones.common.records import Headers
from milestones.common.state.layers import ABSENT
from milestones.common.state.stores.emit_buffer import PendingUpdate
from milestones.common.state.stores.key_value_stores import KeyValueStore
from milestones.common.state.stores.key_views import ViewedRow
from milestones.common.state.stores.row_headers import (
    behind,
    headed,
    headers_in,
    timed_headers,
    timed_row,
    without_headers,
)
from milestones.common.state.stores.rows import Rows, TimedRows
from milestones.common.state.stores.session_store import SessionStore
from milestones.common.state.stores.window_stores import TimestampedWindows
from milestones.common.type_variables import K, V
from milestones.common.windowed import FOREVER, Windowed
from milestones.common.writable import first_timestamp, headers_of, timestamp_of


class ValueTimestampHeaders(NamedTuple, Generic[V]):
    """A value, its timestamp in ms since the epoch, and headers."""

    value: V
    timestamp: int
    headers: Headers


class AggregationWithHeaders(NamedTuple, Generic[V]):
    """The aggregate of a session, and headers."""

    aggregation: V
    headers: Headers


class _HeadersRows(TimedRows[K, V]):
    """Values with time and headers. For operators a row is a plain tuple without headers. User code gets the result of
    `_shown_value`, which has headers."""

    __slots__ = ()

    def open(self) -> None:
        super().open()
        decode = self._decode_value

        def decode_row(data: bytes) -> Any:
            return decode(without_headers(data))

        self._decode_value = decode_row

    def _shown_value(self, local: bytes) -> ValueTimestampHeaders[Any]:
        """Decode a local value to the value that user code sees."""
        value, timestamp = self._decoded(local)
        return ValueTimestampHeaders(value, timestamp, timed_headers(local))

    def _put_shown(self, data: bytes, row: ValueTimestampHeaders[Any] | None) -> None:
        """Set the row of a serialised key. None, or a row whose value is None, deletes the key."""
        if row is None or row.value is None:
            return self._delete(data, self._record.timestamp)
        try:
            encoded = self._encode_value(row.value)
            timestamp, headers = timestamp_of(row.timestamp) or first_timestamp(), headers_of(row.headers)
        except Exception as error:
            self._refused(1, row, error)
        self._log(data, encoded, timestamp, headers or None)
        self._layers.put(data, timed_row(encoded, timestamp, headers))
        self._read_cache.forget(data)
        return None

    def _checked(self, row: Any) -> Any:
        """Return `row` if it is a `ValueTimestampHeaders` or None. Raises `SerializationError` otherwise."""
        if row is not None and not isinstance(row, ValueTimestampHeaders):
            raise _without_headers(self, row, "a ValueTimestampHeaders(value, timestamp in ms, headers)")
        return row


class TimestampedKeyValueStoreWithHeaders(
    _HeadersRows[K, ValueTimestampHeaders[V]], KeyValueStore[K, ValueTimestampHeaders[V]]
):
    """Values with their time and headers (`ValueTimestampHeaders`), by key. Under `dsl_store_format="headers"`, tables
    and aggregations keep their rows in such a store."""

    __slots__ = ()

    def get(self, key: K) -> ValueTimestampHeaders[V] | None:
        """Return the value of `key` with its time and headers, None if it is absent."""
        local = self._layers.get(self._key(key, "get"))
        return None if local is None else self._shown_value(local)

    def put(self, key: K, value: ValueTimestampHeaders[V] | None) -> None:
        """Set the value of `key`. None, or a `ValueTimestampHeaders` whose value is None, deletes the key."""
        self._put_shown(self._key(key, "put"), self._checked(value))

    def _entries(self, scanned: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        for key, local in scanned:
            yield self._decode_key(key), self._shown_value(local)


class TimestampedWindowStoreWithHeaders(
    _HeadersRows[K, ValueTimestampHeaders[V]], TimestampedWindows[K, ValueTimestampHeaders[V]]
):
    """Values with their time and headers (`ValueTimestampHeaders`), by key and start of a window. Under
    `dsl_store_format="headers"`, windowed aggregations keep their rows in such a store."""

    __slots__ = ()

    def put(self, key: K, value: ValueTimestampHeaders[V] | None, start: int) -> bool:
        """Set the value of `key` in the window that starts at `start`. None, or a `ValueTimestampHeaders` whose value
        is None, deletes the value. Returns False, and puts nothing, if all windows of the same segment have expired."""
        self._given(key, "put")
        row = self._checked(value)
        if not self._may_put(start):
            return False
        place = self._place((key, start, 0))
        self._put_shown(place, row)
        if self._closing:
            self._note_closing(place, there=row is not None and row.value is not None)
        return True

    @overload
    def fetch(self, key: K, first: int) -> ValueTimestampHeaders[V] | None: ...

    @overload
    def fetch(self, key: K, first: int, last: int) -> Iterator[tuple[int, ValueTimestampHeaders[V]]]: ...

    def fetch(
        self, key: K, first: int, last: int | None = None
    ) -> ValueTimestampHeaders[V] | Iterator[tuple[int, ValueTimestampHeaders[V]]] | None:
        """Return what `WindowStore.fetch` returns, with a `ValueTimestampHeaders` for each value."""
        self._given(key, "fetch")
        if last is not None:
            return self._starts(self._of(key, "fetch", first, last))
        place = self._place((key, first, 0))
        local = None if first < self._earliest else self._layers.get(place)
        return None if local is None else self._shown_value(local)

    def _starts(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[int, ValueTimestampHeaders[V]]]:
        unpack, length = self.tail.unpack_from, self.tail.size
        return ((unpack(local, len(local) - length)[0], self._shown_value(value)) for local, value in rows)


class SessionStoreWithHeaders(SessionStore[K, AggregationWithHeaders[V]]):
    """Aggregates with headers (`AggregationWithHeaders`), by key and session. Under `dsl_store_format="headers"`,
    aggregations of sessions keep their rows in such a store."""

    __slots__ = ()

    def open(self) -> None:
        super().open()
        decode = self._decode_value

        def decode_behind(data: bytes) -> Any:
            return decode(data[behind(data) :])

        self._decode_value = decode_behind

    def put(self, session: Windowed[K], value: AggregationWithHeaders[V] | None) -> None:
        """Set the aggregate of a session. None, or an `AggregationWithHeaders` whose aggregate is None, deletes the
        session."""
        self._given(session.key, "put")
        aggregation, headers = self._parted(value)
        place = self._place(session)
        if self._may_put(session.end):
            self._put_unread(place, aggregation, headers)
            if self._closing:
                self._note_closing(place, there=aggregation is not None)

    def _parted(self, value: Any) -> tuple[Any, Headers]:
        if value is None:
            return None, []
        if isinstance(value, AggregationWithHeaders):
            return value
        raise _without_headers(self, value, "an AggregationWithHeaders(aggregation, headers)")

    def fetch_session(self, key: K, start: int, end: int) -> AggregationWithHeaders[V] | None:
        """Return the aggregate of the session of `key` from `start` to `end` with its headers, None if it is absent."""
        self._given(key, "fetch_session")
        place = self._place(Windowed(key, start, end))
        local = None if end < self._earliest else self._layers.get(place)
        return None if local is None else self._shown_value(local)

    def flush(self, key: bytes, waiting: PendingUpdate) -> None:
        """Emit a waiting update with the headers of its row, as in Kafka Streams. A deletion is emitted without
        headers."""
        record, stored = self._record, self._layers.get(key)
        headers, record.headers = record.headers, None if stored is None else headers_in(stored) or None
        try:
            super().flush(key, waiting)
        finally:
            record.headers = headers

    def _put_unread(self, place: bytes, value: Any, headers: Headers | None = None) -> None:
        timestamp = self._record.timestamp
        if value is None:
            return self._delete(place, timestamp)
        try:
            encoded, headers = self._encode_value(value), headers_of(headers or ())
        except Exception as error:
            self._refused(1, value, error)
        self._log(place, encoded, timestamp, headers or None)
        self._layers.put(place, headed(headers) + encoded)
        self._read_cache.forget(place)
        return None

    def replace_rows(
        self, key: bytes, former: Sequence[ViewedRow], start: int, end: int, value: Any, now: int = FOREVER,
        new: bool = False,
    ) -> ViewedRow | None:  # fmt: skip
        """Do the same as in a store without headers. The session gets no headers, as operators give none."""
        place = self._head(end) + key + self.tail.pack(end, start)
        taken = self.put_at(place, value, end, now)
        self.delete_rows(key, [row for row in former if row[0] != end or row[1] != start], now)
        return [end, start, place, self._layers.get(place), ABSENT] if taken else None

    def _shown_value(self, local: bytes) -> AggregationWithHeaders[Any]:
        return AggregationWithHeaders(self._decoded(local), headers_in(local))


def _without_headers(store: Rows[Any, Any], value: object, wanted: str) -> SerializationError:
    return SerializationError(
        f"store {store.name} of task {store._task} keeps headers: put {wanted}, not a {type(value).__qualname__}"
    )
