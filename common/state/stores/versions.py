"""The versions of each key of a versioned store, and their local bytes.

    segment | key | until (8)    -> 1, since (8), value      an old version
    segment | key | until (8)    -> 0, since (8)             an old deletion: no value from `since` to `until`
    0xff 0x00 | key              -> since (8), value         the latest version
    0xff 0x01                    -> time (8)                 the highest time that the store has seen

A version is valid from `since` (inclusive) to `until` (exclusive). At a time for which there is no version, the key has
no value.

*Guarantees*: those of Kafka Streams' versioned store (KIP-889). These guarantees say which version is valid at each
time, and until when a new version is valid. A deletion at exactly the time of the latest version leaves no row of its
own.
*Assumes*: times are positive. A put isn't older than the history.

*Why this way*: the latest versions have a place of their own, because most reads ask for them, and because the latest
version of a key is kept for ever. An old version is in the segment of its `until`: readers need it until this time
is older than the history. Once no version of a segment is needed, the whole segment is deleted as one range of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from milestones.common.state.changelog import TIMESTAMP, TIMESTAMP_BYTES
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.window_layouts import SEGMENT, first_segment, present_segments

LATEST: Final = b"\xff\x00"
OBSERVED: Final = b"\xff\x01"

STILL: Final = -1
"""The value of `until` for the latest version, which no version has replaced."""

NOT_PUT: Final = -(1 << 63)
"""The value of `until` for a version that wasn't put, because it is older than the history."""

_DELETED, _PRESENT = b"\x00", b"\x01"
_LAST: Final = b"\xff" * TIMESTAMP_BYTES
_pack, _unpack = TIMESTAMP.pack, TIMESTAMP.unpack_from


class Readable(Protocol):
    """Rows of bytes that can be read: a namespace, or layers."""

    def get(self, key: bytes, /) -> bytes | None: ...

    def scan(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...


class Writable(Readable, Protocol):
    def put(self, key: bytes, value: bytes | None) -> None: ...


class Held(NamedTuple):
    """A version. `row`: its time and its value, as bytes. `until`: the time before which the version is valid, `STILL`
    for the latest version."""

    row: bytes
    until: int


class VersionReader:
    """Reads the versions in `rows`.

    Two arguments occur in several methods. `observed` is the highest time that the store has seen. `newest` is the
    highest time of its rows. `newest` is later if the changelog, after a crash, was ahead of the last commit."""

    __slots__ = ("_history_ms", "_rows", "_segment_ms")

    def __init__(self, rows: Readable, spec: StoreSpec) -> None:
        self._rows, self._history_ms, self._segment_ms = rows, spec.retention_ms, spec.segment_ms

    def observed(self) -> int:
        """Return the highest time that is stored in the rows, -1 if there is none."""
        stored = self._rows.get(OBSERVED)
        return -1 if stored is None else int(_unpack(stored)[0])

    def too_old(self, time: int, observed: int) -> bool:
        """True if a time is older than the history."""
        return time < observed - self._history_ms

    def first_segment(self, observed: int) -> int:
        """Return the number of the first segment that hasn't expired."""
        return first_segment(observed, self._history_ms, self._segment_ms)

    def at(self, key: bytes, time: int, observed: int, newest: int) -> Held | None:
        """Return the version that is valid at `time`, None if there is none. If `time` is older than the history, only
        the latest version is found."""
        latest = self._rows.get(LATEST + key)
        if latest is not None and _unpack(latest)[0] <= time:
            return Held(latest, STILL)
        if self.too_old(time, observed):
            return None
        found = self.following(key, time, observed, newest)
        if found is None or found[1][:1] == _DELETED or _unpack(found[1], 1)[0] > time:
            return None
        return Held(found[1][1:], found[0])

    def following(self, key: bytes, time: int, observed: int, newest: int) -> tuple[int, bytes] | None:
        """Return (`until`, bytes) of the old version or deletion whose `until` is the next one after `time`. None if
        there is none."""
        if time >= newest:
            return None
        return next(self._old(key, time + 1, observed, newest), None)

    def between(self, key: bytes, first: int, last: int, observed: int, newest: int) -> Iterator[Held]:
        """Yield the versions that are valid at any time from `first` to `last`, in the order of time."""
        if not self.too_old(last, observed):
            for until, stored in self._old(key, max(first + 1, 0), observed, newest):
                (since,) = _unpack(stored, 1)
                if since > last:
                    return
                if stored[:1] == _PRESENT:
                    yield Held(stored[1:], until)
        latest = self._rows.get(LATEST + key)
        if latest is not None and _unpack(latest)[0] <= last:
            yield Held(latest, STILL)

    def _old(self, key: bytes, until: int, observed: int, newest: int) -> Iterator[tuple[int, bytes]]:
        """Yield (`until`, bytes) of the old versions and deletions whose `until` is this one or later, ascending."""
        first, last = until // self._segment_ms, newest // self._segment_ms
        size = SEGMENT.size + len(key) + TIMESTAMP_BYTES
        for number in present_segments(self._rows.scan, max(first, self.first_segment(observed)), last):
            head = SEGMENT.pack(number) + key
            for local, stored in self._rows.scan(head + _pack(until), head + _LAST):
                if len(local) == size:  # otherwise the row is that of a longer key that begins with `key`
                    yield int(_unpack(local, size - TIMESTAMP_BYTES)[0]), stored


class Versions(VersionReader):
    """Reads and writes the versions in layers."""

    __slots__ = ("_get", "_put")

    def __init__(self, rows: Writable, spec: StoreSpec) -> None:
        super().__init__(rows, spec)
        self._get, self._put = rows.get, rows.put

    def put(self, key: bytes, value: bytes | None, time: int, newest: int) -> int:
        """Add a version, or a deletion (None). A version of the same time is replaced.

        Returns the time until which the new version is valid, `STILL` for the latest version."""
        latest = self._get(LATEST + key)
        if latest is None:
            return self._put_old(key, value, time, STILL, newest)
        (since,) = _unpack(latest)
        if time < since:
            return self._put_old(key, value, time, since, newest)
        if time > since:
            self._put(self._place(key, time), _PRESENT + latest)
        self._put(LATEST + key, None if value is None else _pack(time) + value)
        return STILL

    def _put_old(self, key: bytes, value: bytes | None, time: int, until: int, newest: int) -> int:
        """Add a version that is older than the latest one, or a version of a key that has no latest one. `until`: the
        time at which the latest version begins, `STILL` if the key has none. Returns as `put`."""
        found = self.following(key, time, newest, newest)
        if found is not None:
            end, stored = found
            (since,) = _unpack(stored, 1)
            if since <= time:  # the version that was valid at `time` ends at `time` from now on
                if since < time:
                    self._put(self._place(key, time), stored)
                self._put(self._place(key, end), _old_row(value, time))
                return end
            until = since
        if until != STILL:
            self._put(self._place(key, until), _old_row(value, time))
        elif value is not None:
            self._put(LATEST + key, _pack(time) + value)
        elif self._get(place := self._place(key, time)) is None:  # otherwise a version ends at this time already
            self._put(place, _old_row(None, time))
        return until

    def observe(self, time: int) -> None:
        """Write the highest time that the store has seen."""
        self._put(OBSERVED, _pack(time))

    def _place(self, key: bytes, until: int) -> bytes:
        return SEGMENT.pack(until // self._segment_ms) + key + _pack(until)


def _old_row(value: bytes | None, since: int) -> bytes:
    return _DELETED + _pack(since) if value is None else _PRESENT + _pack(since) + value
