"""`SessionRows`: the rows of a session store, as operators read and write them.

*Guarantees*: as `segmented_rows.py`. The time of a session is its end.
*Assumes*: as `rows.py`. Sessions have 0 <= start <= end.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar

from milestones.common.state.layers import ABSENT
from milestones.common.state.stores.key_views import KeyView, ViewedRow
from milestones.common.state.stores.rows import REMEMBERED_BYTES
from milestones.common.state.stores.segmented_rows import HEAD, SegmentedRows
from milestones.common.state.stores.window_layouts import SEGMENT, SESSIONS, TimeOrder
from milestones.common.type_variables import K, V
from milestones.common.windowed import END_AND_START, FOREVER, Windowed

_pack = END_AND_START.pack


class SessionRows(SegmentedRows[K, V]):
    """Rows by key and session. `near` finds the sessions that a new record may belong to."""

    __slots__ = ()

    tail: ClassVar[struct.Struct] = END_AND_START
    order: ClassVar[TimeOrder] = SESSIONS
    most_tail: ClassVar[bytes] = END_AND_START.pack(FOREVER, FOREVER)

    def open(self) -> None:
        super().open()
        encode, decode, segment_ms = self._encode_key, self._decode_key, self._segment_ms
        segment, pack, unpack, length = SEGMENT.pack, self.tail.pack, self.tail.unpack_from, self.tail.size

        def encode_session(windowed: tuple[Any, int, int]) -> bytes:
            key, start, end = windowed
            return segment(end // segment_ms) + encode(key) + pack(end, start)

        def decode_session(local: bytes) -> Windowed[Any]:
            end, start = unpack(local, len(local) - length)
            return Windowed(decode(local[HEAD:-length]), start, end)

        self._encode_key, self._decode_key = encode_session, decode_session

    def _views_from_start(self) -> bool:
        return True

    # -- one session

    def put_raw(self, session: Windowed[Any], value: Any, now: int = FOREVER) -> bool:
        """Set the plain value of a session. None deletes the session. Returns False, and sets nothing, if all sessions
        of the same segment have expired.

        `now`: the highest time of the records so far. After a crash a session may contain records that are processed
        once more, so that it ends later than `now`. Such a session doesn't raise the store's time above `now`."""
        self._given(session.key, "put")
        return self.put_at(self._place(session), value, session.end, now)

    def put_at(self, place: bytes, value: Any, end: int, now: int = FOREVER) -> bool:
        """Set the plain value of the session whose local key is `place` and which ends at `end`. See `put_raw`."""
        if not self._may_put(self._counted(end, now)):
            return False
        self._put_unread(place, value)
        if self._closing:
            self._note_closing(place, there=value is not None)
        return True

    def get_raw(self, session: Windowed[K]) -> tuple[V, int] | None:
        """Return (value, end) of a session, None if it is absent."""
        value = self._fetched(session)
        return None if value is None else (value, session.end)

    def _fetched(self, session: Any) -> Any:
        """Return the plain value of a session, None if it is absent or has expired."""
        self._given(session.key, "fetch_session")
        if session.end < self._earliest:
            return None
        data = self._layers.get(self._place(session))
        return None if data is None else self._decoded(data)

    # -- the sessions near a record, for an operator

    def near(self, key: Any, earliest_end: int, latest_start: int) -> tuple[bytes, list[ViewedRow]]:
        """Return the bytes of `key`, and the rows that `find_sessions` would find, with their values decoded."""
        if key is None:
            raise self._no_key("find_sessions")
        try:
            data = self._encode_alone(key)
        except Exception as error:
            self._refused(0, key, error)
        seen = self._observed.value - self._retention_ms  # rows of this time have expired
        earliest = earliest_end if earliest_end > seen else seen + 1
        cache = self._view_cache
        views = None if cache is None else cache.views
        view = None if views is None else views.young.get(data)
        if view is None or view.since > earliest:  # most often the key is in use, and its view reaches far enough back
            earliest = max(0, earliest)
            view = self._view(data, earliest) or self._view_of(data, earliest)
        found: list[ViewedRow] = []
        for row in view.rows:
            if row[0] >= earliest and row[1] <= latest_start:
                value = row[4]
                if value is ABSENT:
                    value = self._value_of(row)
                    if row[4] is ABSENT:  # it is mutable, so the view must not have it
                        row = [*row[:4], value]
                found.append(row)
        return data, found

    def _view_of(self, key: bytes, earliest: int) -> KeyView:
        """Read the rows of a key into a view that nobody keeps."""
        pairs = self._read_key(key, (earliest, FOREVER), (_pack(earliest, 0), self.most_tail))
        return self._as_view(key, earliest, pairs)

    def row_value(self, row: ViewedRow) -> Any:
        """Return the value of a row that `near` has found, decoded once more."""
        return self._decoded(row[3])

    def replace_rows(
        self, key: bytes, former: Sequence[ViewedRow], start: int, end: int, value: Any, now: int = FOREVER,
        new: bool = False,
    ) -> ViewedRow | None:  # fmt: skip
        """Set the value of a session of the key whose bytes are `key`, and delete the sessions that were merged into
        it: the rows `former`, which `near` has found. The value isn't None. Returns the session's row. Returns None,
        and sets nothing, if all sessions of the same segment have expired. `now`: see `put_raw`.

        `new`: True if `near` was asked for a time that includes the session, and has found no session with these bounds
        that isn't in `former`.

        The deletions come after the put: a crash may leave only the first part of the changelog records, and one of
        both must be among them."""
        if self._observed.value < end <= now:
            self._observed.set(end)
        elif end != self._observed.value and not self._may_put(self._counted(end, now)):
            self.delete_rows(key, former, now)
            return None
        head = self._of_segment if self._begins <= end < self._ends else self._head(end)
        place = head + key + _pack(end, start)
        try:
            stored = self._encode_value(value)
        except Exception as error:
            self._refused(1, value, error)
        log, layers, timestamp = self._log, self._layers, self._record.timestamp
        seen = self._observed.value - self._retention_ms
        for row in former:
            if row[2] == place:  # the session keeps its bounds
                new = False
        log(place, stored, timestamp)
        if new and end > seen:  # else `near` may have passed it over
            layers.put_new(place, stored)
        else:
            layers.put(place, stored)
        for row in former:  # `near` shows none that have expired
            if row[2] != place:
                log(row[2], None, timestamp)
                layers.put(row[2], None)
        if self._closing:
            self._note_closing_rows(place, former)
        remembered = type(value) is self._exact_type and len(stored) <= REMEMBERED_BYTES
        grown: ViewedRow = [end, start, place, stored, value if remembered else ABSENT]
        if end > self._highest:
            self._highest = end
        views = None if self._view_cache is None else self._view_cache.views
        if views is not None and views.replace(key, former, grown, seen):
            self._turn(views)
        return grown

    def delete_rows(self, key: bytes, rows: Sequence[ViewedRow], now: int = FOREVER) -> None:
        """Delete sessions that `near` has found for the key whose bytes are `key`. `now`: see `put_raw`."""
        there = [row for row in rows if self._may_put(self._counted(row[0], now))]
        for row in there:
            self._log(row[2], None, self._record.timestamp)
            self._layers.put(row[2], None)
            if self._closing:
                self._note_closing(row[2], there=False)
        views = None if self._view_cache is None else self._view_cache.views
        if views is not None and views.replace(key, there, None, self._earliest - 1):
            self._turn(views)

    def _note_closing_rows(self, place: bytes, former: Sequence[ViewedRow]) -> None:
        """Update the index by time: the session at the local key `place` took the place of the sessions `former`."""
        for row in former:
            self._note_closing(row[2], there=False)
        self._note_closing(place, there=True)

    def _counted(self, end: int, now: int) -> int:
        """Return the time by which a session that ends at `end` raises the store's time. See `put_raw`."""
        # the store's time may be above `now` already, and then decides if the session has expired
        return end if end <= now else min(end, max(now, self._observed.value))
