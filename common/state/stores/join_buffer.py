"""`JoinBuffer`: the records of a stream that wait for the rows of a versioned table (KIP-923), in the order of time.

| | bytes in the store and in its changelog |
|---|---|
| key | 0 (1), time (8), key, sequence number (4) |
| value | the bytes of a suppress buffer's row that has only a new value, and the buffer time 0 |

Changelog records have no time of their own. All bytes are those of Kafka Streams.

*Guarantees*: records are in the order of their times. Records of the same time are in the order of their keys' bytes,
and those of the same key in the order in which they came. While a record waits, no other record gets its sequence
number, not even in another process. All other guarantees are those of `rows.py`.
*Assumes*: as `rows.py`. Times are not negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from milestones.common.errors import StateFormatError
from milestones.common.records import Emitted
from milestones.common.state.cells import UNKNOWN
from milestones.common.state.changelog import TIMESTAMP, Log
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.rows import Rows, StoreParts
from milestones.common.state.stores.sequences import LAST_SEQUENCE
from milestones.common.state.stores.suppress_layout import WHEN_SENT, Buffered, Context, decoded, encoded
from milestones.common.windowed import FOREVER, Windowed

_TIME_FIRST: Final = b"\x00"
_HEAD: Final = len(_TIME_FIRST) + TIMESTAMP.size
_SEQUENCE: Final = struct.Struct(">i")


class WaitingRecord(NamedTuple):
    """A record that waits. `place`: its local key, which `remove` takes."""

    place: bytes
    key: Any
    value: Any
    context: Context


class JoinBuffer(Rows[Any, Any]):
    """The records that wait, by time."""

    __slots__ = ("_first_time", "_observed", "_sequence")

    def __init__(self, parts: StoreParts) -> None:
        cell, name = parts.cells.cell, parts.spec.name
        self._observed = cell(f"store {name} highest time", UNKNOWN)
        self._first_time = cell(f"store {name} first time", FOREVER)
        self._sequence = cell(f"store {name} sequence", 0)
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        places = [place for place, _ in self._layers.scan()]
        self._first_time.back(_time(places[0]) if places else FOREVER)
        if places:
            # The record with the highest time that the store has seen is still in the buffer: a record leaves the
            # buffer only when a later one has come. (Without a grace it leaves immediately, but then it makes no
            # difference if a record is too late to wait.) So the last row gives the highest time.
            self._observed.back(max(self._observed.value, _time(places[-1])))
            used = max(_SEQUENCE.unpack_from(place, len(place) - _SEQUENCE.size)[0] for place in places)
            self._sequence.back(max(self._sequence.value, used))

    def too_late(self, time: int, grace_ms: int) -> bool:
        """True if a record of this time comes too late to wait."""
        return bool(time < self._observed.value - grace_ms)

    def put(self, key: Any, value: Any, context: Context) -> None:
        """Add a record to those that wait. Its time is that of `context`."""
        sequence, time = (self._sequence.value + 1) & LAST_SEQUENCE, context.timestamp
        data = self._key(key, "put")
        try:
            part = self._encode_value(value)
        except Exception as error:
            self._refused(1, value, error)
        self._sequence.set(sequence)
        if time > self._observed.value:
            self._observed.set(time)
        if time < self._first_time.value:
            self._first_time.set(time)
        place = _TIME_FIRST + TIMESTAMP.pack(time) + data + _SEQUENCE.pack(sequence)
        self._write(place, encoded(Buffered(context, None, None, part, 0)))

    def due(self, grace_ms: int) -> list[WaitingRecord]:
        """Return the records whose time is at least `grace_ms` before the highest time, in the order of time. The
        caller must `remove` all of them."""
        until = self._observed.value - grace_ms
        if self._first_time.value > until:
            return []
        beyond = _TIME_FIRST + TIMESTAMP.pack(until + 1)
        found = [self._waiting(*row) for row in self._layers.scan(None, beyond)]
        following = next(self._layers.scan(beyond), None)
        self._first_time.set(FOREVER if following is None else _time(following[0]))
        return found

    def remove(self, place: bytes) -> None:
        """Remove the record with this local key."""
        self._write(place, None)

    def _write(self, place: bytes, row: bytes | None) -> None:
        self._log(place, row, self._record.timestamp)
        self._layers.put(place, row)

    def _waiting(self, place: bytes, data: bytes) -> WaitingRecord:
        try:
            row = decoded(data)
        except ValueError as error:
            raise StateFormatError(
                f"store {self.name} of task {self._task} has a record that can't be read ({error}): another "
                "application writes to its changelog. Stop that application and reset this one, or delete the topic, "
                "which loses the records that wait"
            ) from error
        key = self._decode_key(place[_HEAD : -_SEQUENCE.size])
        return WaitingRecord(place, key, None if row.new is None else self._decoded(row.new), row.context)


def _time(place: bytes) -> int:
    return int(TIMESTAMP.unpack_from(place, len(_TIME_FIRST))[0])


def waiting_since(_: StoreSpec, place: bytes) -> Windowed[bytes]:
    """Return the key's bytes and the time of a changelog key."""
    time = _time(place)
    return Windowed(place[_HEAD : -_SEQUENCE.size], time, time)


def join_buffer_changelog(
    topic: str, partition: int, store: str, append: Callable[[Emitted], None], *_: object
) -> Log:
    """Make a `Log` as `changelog.changelog` does. Its changelog records have no time of their own."""

    def log(key: bytes, value: bytes | None, _timestamp: int, _: object = None) -> None:
        append((topic, value, key, partition, None, store, WHEN_SENT, None))

    return log
