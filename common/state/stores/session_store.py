"""`SessionStore`: values by key and session, as user code and operators see them.

*Guarantees*: as `segmented_rows.py`. The time of a session is its end.
*Assumes*: as `rows.py`. Sessions have 0 <= start <= end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from milestones.common.state.stores.segmented_rows import HEAD, SegmentedRows
from milestones.common.state.stores.window_layouts import SEGMENT, SESSIONS, TimeOrder
from milestones.common.type_variables import K, V
from milestones.common.windowed import END_AND_START, FOREVER, Windowed

_LAST = END_AND_START.pack(FOREVER, FOREVER)


class SessionStore(SegmentedRows[K, V]):
    """Values by key and session. `find_sessions` finds the sessions that a new record may belong to."""

    __slots__ = ()

    tail: ClassVar[struct.Struct] = END_AND_START
    order: ClassVar[TimeOrder] = SESSIONS

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

    # -- one session

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Set the value of a session. None deletes the session."""
        self.put_raw(session, value)

    def put_raw(self, session: Windowed[Any], value: Any, now: int = FOREVER) -> bool:
        """Set the plain value of a session. None deletes the session. Returns False, and sets nothing, if all sessions
        of the same segment have expired.

        `now`: the highest time of the records so far. After a crash a session may contain records that are processed
        once more, so that it ends later than `now`. Such a session doesn't raise the store's time above `now`."""
        self._given(session.key, "put")
        return self.put_at(self._place(session), value, session.end, now)

    def put_at(self, place: bytes, value: Any, end: int, now: int = FOREVER) -> bool:
        """Set the plain value of the session whose local key is `place` and which ends at `end`. See `put_raw`."""
        if end > now:  # the store's time may be above `now` already, and then decides if the session has expired
            end = min(end, max(now, self._observed.value))
        if not self._may_put(end):
            return False
        self._put_unread(place, value)
        if self._closing:
            self._note_closing(place, there=value is not None)
        return True

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session."""
        self.put_raw(session, None)

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """Return the value of the session of `key` from `start` to `end`, None if it is absent."""
        value: V | None = self._fetched(Windowed(key, start, end))
        return value

    def get_raw(self, session: Windowed[K]) -> tuple[V, int] | None:
        """Return (value, end) of a session, None if it is absent."""
        value = self._fetched(session)
        return None if value is None else (value, session.end)

    def _fetched(self, session: Any) -> Any:
        """Return the plain value of a session, None if it is absent or has expired."""
        self._given(session.key, "fetch_session")
        return None if session.end < self._earliest else self._get_row(session)

    # -- many sessions

    def find_sessions(self, key: K, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (session, value) of the sessions of `key` that end at `earliest_end` or later and start at
        `latest_start` or before, in the order of their ends."""
        return self._sessions("find_sessions", key, key, earliest_end, latest_start)

    def near(self, key: K, earliest_end: int, latest_start: int) -> list[tuple[bytes, Windowed[Any], Any]]:
        """Return the sessions of `find_sessions` as a list of (local key, session, value). `put_at` takes the local
        key."""
        rows = self._of(key, "find_sessions", earliest_end)
        decode, decoded = self._decode_key, self._decoded
        return [
            (local, session, decoded(value))
            for local, value in rows
            if (session := decode(local)).start <= latest_start
        ]

    def _of(
        self, key: Any, call: str, earliest_end: int, *, reverse: bool = False
    ) -> Iterable[tuple[bytes, bytes]]:
        """Return local keys and values of the sessions of `key` that end at `earliest_end` or later, at the
        time of this call."""
        earliest = max(earliest_end, self._observed.value - self._retention_ms + 1, 0)
        tails = self.tail.pack(earliest, 0), _LAST
        return self._of_key(self._key_alone(key, call), (earliest, FOREVER), tails, reverse=reverse)

    def backward_find_sessions(
        self, key: K, earliest_end: int, latest_start: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the sessions of `find_sessions`, the last one first."""
        return self._sessions("backward_find_sessions", key, key, earliest_end, latest_start, reverse=True)

    def find_sessions_of_range(
        self, first_key: K | None, last_key: K | None, earliest_end: int, latest_start: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the sessions of `find_sessions` for all keys from `first_key` to `last_key` (both included, None: no
        bound)."""
        return self._sessions("find_sessions_of_range", first_key, last_key, earliest_end, latest_start)

    def backward_find_sessions_of_range(
        self, first_key: K | None, last_key: K | None, earliest_end: int, latest_start: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the sessions of `find_sessions_of_range`, the last one first."""
        return self._sessions(
            "backward_find_sessions_of_range", first_key, last_key, earliest_end, latest_start, reverse=True
        )

    def find_sessions_by_end(self, earliest_end: int, latest_end: int) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (session, value) of all sessions that end from `earliest_end` to `latest_end` (both included), in the
        order of `fetch_range`."""
        return self._sessions("find_sessions_by_end", None, None, earliest_end, FOREVER, latest_end=latest_end)

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (session, value) of all sessions of `key`, in the order of their ends."""
        return self._sessions("fetch", key, key, 0, FOREVER)

    def backward_fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the sessions of `fetch`, the last one first."""
        return self._sessions("backward_fetch", key, key, 0, FOREVER, reverse=True)

    def fetch_range(self, first_key: K | None, last_key: K | None) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (session, value) of all keys from `first_key` to `last_key` (both included, None: no bound)."""
        return self._sessions("fetch_range", first_key, last_key, 0, FOREVER)

    def backward_fetch_range(self, first_key: K | None, last_key: K | None) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the sessions of `fetch_range`, the last one first."""
        return self._sessions("backward_fetch_range", first_key, last_key, 0, FOREVER, reverse=True)

    def _sessions(
        self,
        call: str,
        first_key: Any,
        last_key: Any,
        earliest_end: int,
        latest_start: int,
        *,
        latest_end: int = FOREVER,
        reverse: bool = False,
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        if call in ONE_KEY:
            self._given(first_key, call)
        keys = self._keys(first_key, last_key, call)
        earliest = max(earliest_end, self._earliest, 0)
        tails = self.tail.pack(earliest, 0), self.tail.pack(FOREVER, FOREVER)
        return self._found(
            keys, (earliest, latest_end), tails,
            lambda end, start: earliest <= end <= latest_end and start <= latest_start, reverse=reverse,
        )  # fmt: skip


ONE_KEY = frozenset({"find_sessions", "backward_find_sessions", "fetch", "backward_fetch"})
"""The calls that need a key."""
