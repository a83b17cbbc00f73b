"""`SessionStore`: values by key and session, as user code sees them.

*Guarantees*: as `segmented_rows.py`. The time of a session is its end.
*Assumes*: as `rows.py`. Sessions have 0 <= start <= end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milestones.common.state.stores.session_rows import SessionRows
from milestones.common.type_variables import K, V
from milestones.common.windowed import FOREVER, Windowed


class SessionStore(SessionRows[K, V]):
    """Values by key and session. `find_sessions` finds the sessions that a new record may belong to."""

    __slots__ = ()

    # -- one session

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Set the value of a session. None deletes the session."""
        self.put_raw(session, value)

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session."""
        self.put_raw(session, None)

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """Return the value of the session of `key` from `start` to `end`, None if it is absent."""
        value: V | None = self._fetched(Windowed(key, start, end))
        return value

    # -- many sessions

    def find_sessions(self, key: K, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (session, value) of the sessions of `key` that end at `earliest_end` or later and start at
        `latest_start` or before, in the order of their ends."""
        return self._sessions("find_sessions", key, key, earliest_end, latest_start)

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
        earliest = self._visible_from(earliest_end)
        tails = self.tail.pack(earliest, 0), self.tail.pack(FOREVER, FOREVER)
        return self._found(
            keys, (earliest, latest_end), tails,
            lambda end, start: earliest <= end <= latest_end and start <= latest_start, reverse=reverse,
        )  # fmt: skip


ONE_KEY = frozenset({"find_sessions", "backward_find_sessions", "fetch", "backward_fetch"})
"""The calls that need a key."""
