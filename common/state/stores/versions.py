"""The versions of each key of a versioned store, and their local bytes.

    segment | key | until (8)    -> 1, since (8), value      a version that another one has followed
    segment | key | until (8)    -> 0, since (8)             a deletion that a version has followed, or the end of one
    0xff 0x00 | key              -> since (8), value         the latest version
    0xff 0x01                    -> time (8)                 the highest time that the store has seen

A version holds from `since` on, and before `until`. What holds at no time between two versions is a deletion. An old
version is in the segment of its `until`, so that it goes with that segment, when it is older than the history.

*Guarantees*: those of Kafka Streams' versioned store (KIP-889): what holds at each time, until when a new version
holds, and that a deletion at the very time of the latest version leaves no trace of its own.
*Assumes*: times are positive. A put isn't older than the history.
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
"""In place of the time until which a version holds: nothing has followed it."""

NOT_PUT: Final = -(1 << 63)
"""In place of the time until which a version holds: it is older than the history, and wasn't put."""

_DELETED, _PRESENT = b"\x00", b"\x01"
_LAST: Final = b"\xff" * TIMESTAMP_BYTES
_pack, _unpack = TIMESTAMP.pack, TIMESTAMP.unpack_from


class Readable(Protocol):
    """Rows of bytes: a namespace, or layers."""

    def get(self, key: bytes, /) -> bytes | None: ...

    def scan(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...


class Writable(Readable, Protocol):
    def put(self, key: bytes, value: bytes | None) -> None: ...


class Held(NamedTuple):
    """The bytes of a version: its time in front, then the value. `until`: `STILL` for the latest."""

    row: bytes
    until: int


class VersionReader:
    """The versions in `rows`. `observed`, where a method takes it: the highest time that the store has seen. `newest`:
    that of its rows, which is later where a changelog was ahead of the last commit."""

    __slots__ = ("_history_ms", "_rows", "_segment_ms")

    def __init__(self, rows: Readable, spec: StoreSpec) -> None:
        self._rows, self._history_ms, self._segment_ms = rows, spec.retention_ms, spec.segment_ms

    def observed(self) -> int:
        """The highest time that the rows say, -1 without any."""
        stored = self._rows.get(OBSERVED)
        return -1 if stored is None else int(_unpack(stored)[0])

    def too_old(self, time: int, observed: int) -> bool:
        """True if a time is older than the history."""
        return time < observed - self._history_ms

    def first_segment(self, observed: int) -> int:
        """The first segment that isn't gone."""
        return first_segment(observed, self._history_ms, self._segment_ms)

    def at(self, key: bytes, time: int, observed: int, newest: int) -> Held | None:
        """The version that holds at a time; of a time older than the history only the latest one."""
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
        """`until` and bytes of the old version with the least `until` after a time."""
        if time >= newest:
            return None
        return next(self._old(key, time + 1, observed, newest), None)

    def between(self, key: bytes, first: int, last: int, observed: int, newest: int) -> Iterator[Held]:
        """The versions that hold at any time from `first` to `last`, in the order of time."""
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
        """`until` and bytes of the old versions with an `until` of this and later, ascending."""
        first, last = until // self._segment_ms, newest // self._segment_ms
        size = SEGMENT.size + len(key) + TIMESTAMP_BYTES
        for number in present_segments(self._rows.scan, max(first, self.first_segment(observed)), last):
            head = SEGMENT.pack(number) + key
            for local, stored in self._rows.scan(head + _pack(until), head + _LAST):
                if len(local) == size:  # else it is another key, that begins with this one
                    yield int(_unpack(local, size - TIMESTAMP_BYTES)[0]), stored


class Versions(VersionReader):
    """The versions in layers, which it writes, too."""

    __slots__ = ("_get", "_put")

    def __init__(self, rows: Writable, spec: StoreSpec) -> None:
        super().__init__(rows, spec)
        self._get, self._put = rows.get, rows.put

    def put(self, key: bytes, value: bytes | None, time: int, newest: int) -> int:
        """Add a version, or a deletion; the one of the same time is replaced. Returns until when it holds, or `STILL`.
        """
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
        """Add a version that isn't as new as the latest, or a key's first one. `until`: the latest begins."""
        found = self.following(key, time, newest, newest)
        if found is not None:
            end, stored = found
            (since,) = _unpack(stored, 1)
            if since <= time:  # it held at that time, and holds until then from now on
                if since < time:
                    self._put(self._place(key, time), stored)
                self._put(self._place(key, end), _old_row(value, time))
                return end
            until = since
        if until != STILL:
            self._put(self._place(key, until), _old_row(value, time))
        elif value is not None:
            self._put(LATEST + key, _pack(time) + value)
        elif self._get(place := self._place(key, time)) is None:  # else a version ends there anyway
            self._put(place, _old_row(None, time))
        return until

    def observe(self, time: int) -> None:
        """Note the highest time."""
        self._put(OBSERVED, _pack(time))

    def _place(self, key: bytes, until: int) -> bytes:
        return SEGMENT.pack(until // self._segment_ms) + key + _pack(until)


def _old_row(value: bytes | None, since: int) -> bytes:
    return _DELETED + _pack(since) if value is None else _PRESENT + _pack(since) + value
