"""`VersionedStore`: the values that each key has had over time, as user code and operators see them (KIP-889).

*Guarantees*: the store finds the value that was valid at any time within the history, whatever the order of the puts. A
put that is older than the history changes no row. As in Kafka Streams, such a put is logged all the same. All other
guarantees are those of `rows.py`.
*Assumes*: as `rows.py`.

*Why this way*: after a crash under `at_least_once`, the rows may be ahead of the last commit. So the store knows two
highest times. The committed time decides which versions are visible. The time of the rows decides which puts are too
old, as it does in a restoration (docs/decisions/0009-committed-times.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, NamedTuple

from milestones.common.errors import SerializationError
from milestones.common.state.cells import UNKNOWN
from milestones.common.state.changelog import TIMESTAMP
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.rows import StoreParts, TimedRows
from milestones.common.state.stores.versions import LATEST, NOT_PUT, STILL, Held, Versions
from milestones.common.state.times import observed_time
from milestones.common.type_variables import K, V
from milestones.common.windowed import FOREVER
from milestones.common.writable import first_timestamp


class VersionedValue(NamedTuple, Generic[V]):
    """A version: a value, the time from which on it is valid, and the time before which it is valid. `valid_to` is None
    for the latest version."""

    value: V
    timestamp: int
    valid_to: int | None


class VersionedStore(TimedRows[K, V]):
    """Values by key and time. The store is open from the task's start to its close: at other times each call raises
    `StateError`."""

    __slots__ = ("_cells", "_newest", "_observed", "_versions", "last_put")

    versioned: ClassVar[bool] = True

    def __init__(self, parts: StoreParts) -> None:
        self._observed = parts.cells.time(observed_time(parts.spec.name))
        self._newest = parts.cells.cell(f"store {parts.spec.name} newest time", UNKNOWN)
        self._cells = parts.cells
        self._versions = Versions(parts.layers, parts.spec)
        self.last_put: int = STILL
        """The last result of `put`. Operators forward or drop an update according to it."""
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        encode, decode, head = self._encode_key, self._decode_key, len(LATEST)
        self._encode_key = lambda key: LATEST + encode(key)
        self._decode_key = lambda local: decode(local[head:])
        newest = self._versions.observed()
        self._newest.back(newest)
        if newest > self._observed.value and not self._cells.exact:  # no commit has the time (of Kafka Streams, say)
            self._observed.back(newest)

    def get(self, key: K, as_of: int | None = None) -> ValueAndTimestamp[V] | None:
        """Return the latest value of `key` with its time, None if it is absent. With `as_of` (ms), return the value
        that was valid at that time. If that time is older than the history, only a latest value that was valid then is
        found."""
        row: Any = self.get_raw(key) if as_of is None else self.get_as_of(key, as_of)
        return None if row is None else ValueAndTimestamp._make(row)

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Set the value that `key` has from `timestamp` (ms) on. None deletes the key from then on.
        Returns the time before which the value is valid: `STILL` (-1) for the latest value, and `NOT_PUT` (-2^63) if
        `timestamp` is older than the history."""
        self.put_raw(key, value, timestamp)
        return self.last_put

    def delete(self, key: K, timestamp: int) -> ValueAndTimestamp[V] | None:
        """Delete `key` from `timestamp` (ms) on. Returns the value that was valid then, None if there was none or if
        `timestamp` is older than the history."""
        former = None if self._versions.too_old(timestamp, self._observed.value) else self.get(key, timestamp)
        self.put_raw(key, None, timestamp)
        return former

    def versions(self, key: K, first: int = 0, last: int = FOREVER) -> Iterator[VersionedValue[V]]:
        """Yield the values that `key` had at any time from `first` to `last` (ms, both included), in the order of
        time."""
        data = self._key(key, "versions")[len(LATEST) :]
        return map(self._version, self._versions.between(data, first, last, self._observed.value, self._newest.value))

    def all(self) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        """Yield the latest value of every key, in the order of the serialised keys."""
        rows: Iterator[tuple[K, Any]] = self._scan_rows(LATEST, LATEST[:1] + b"\x01")
        return ((key, ValueAndTimestamp._make(row)) for key, row in rows)

    # -- for operators

    def get_as_of(self, key: Any, time: int) -> tuple[Any, int] | None:
        """Return the (value, timestamp) that was valid at `time`, None if there was none."""
        data = self._key(key, "get")[len(LATEST) :]
        held = self._versions.at(data, time, self._observed.value, self._newest.value)
        return None if held is None else self._decoded(held.row)

    def put_raw(self, key: Any, value: Any, timestamp: int) -> None:
        """Set the value that `key` has from `timestamp` on. `last_put` has the result of `put` then."""
        local = self._key(key, "put")
        if timestamp < 0:
            raise SerializationError(f"store {self.name} of task {self._task}: put at {timestamp}, a negative time")
        timestamp = timestamp or first_timestamp()
        encoded = None
        if value is not None:
            try:
                encoded = self._encode_value(value)
            except Exception as error:
                self._refused(1, value, error)
        self._log(local, encoded, timestamp)
        data = local[len(LATEST) :]
        if self._versions.too_old(timestamp, self._newest.value):
            self.last_put = self._put_before(data, encoded, timestamp)
            return
        if timestamp > self._observed.value:
            self._observed.set(timestamp)
        if timestamp > self._newest.value:
            self._newest.set(timestamp)
            self._versions.observe(timestamp)
        self.last_put = self._versions.put(data, encoded, timestamp, self._newest.value)
        if self.last_put == STILL:
            self._read_cache.forget(local)

    def delete_raw(self, key: Any, timestamp: int) -> None:
        """Delete `key` from `timestamp` on."""
        self.put_raw(key, None, timestamp)

    def _put_before(self, key: bytes, encoded: bytes | None, time: int) -> int:
        """Return the result of `put` for a version that is older than the history of the rows. Nothing is put.

        The result is `NOT_PUT`, with one exception: the rows are ahead of the last commit and contain this version,
        because it was put before a crash. In that case the result is that of the first put. The version isn't put once
        more, because a restoration would skip it, too."""
        if self._versions.too_old(time, self._observed.value):
            return NOT_PUT
        times = self._observed.value, self._newest.value
        held = self._versions.at(key, time, *times)
        if held is not None:
            return held.until if encoded is not None and held.row == TIMESTAMP.pack(time) + encoded else NOT_PUT
        if encoded is not None:
            return NOT_PUT
        following = self._versions.following(key, time, *times)
        return STILL if following is None else following[0]

    def _version(self, held: Held) -> VersionedValue[V]:
        value, since = self._decoded(held.row)
        return VersionedValue(value, since, None if held.until == STILL else held.until)
