"""`SuppressBuffer`: the updates of a table that `suppress` keeps back, by key, and in the order of their times.

    put ---> layers (bytes by key) ---> changelog, at the commit
        +--> order (time and key), in memory: made from the layers when the store is opened

*Guarantees*: if an update of a key is already kept back, a new update replaces it, and takes over its time. Updates of
the same time are in the order of their keys' bytes. If a record fails, its changes of rows and order are undone. The
number of updates and their bytes are counted as in Kafka Streams. All other guarantees are those of `rows.py`.
*Assumes*: as `rows.py`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sortedcontainers import SortedList

from milestones.common.records import Change
from milestones.common.state.layers import ABSENT
from milestones.common.state.stores.rows import Rows
from milestones.common.state.stores.suppress_layout import (
    Context,
    decoded,
    encoded_parts,
    prior_of,
    size_of,
    size_of_parts,
)
from milestones.common.windowed import FOREVER

PLACE_BYTES: Final = 450
"""Memory of a key of usual length in the order: the key, its `Place`, its places in the dictionary and the list."""

REMEMBERED_BYTES: Final = 64
"""A prior value of at most this number of bytes is remembered with the key's place. Others are read from their rows."""

Place = tuple[int, int, Any]
"""Time and size of an update that is kept back, and the bytes of its prior value. `ABSENT`: they must be read from the
row."""


class Kept(NamedTuple):
    """An update that was kept back, in the form in which it is sent."""

    key: Any
    change: Change
    context: Context


class SuppressBuffer(Rows):
    """The updates of a table that are kept back, by key."""

    __slots__ = ("_by_key", "_by_time", "_bytes", "_undo")

    def open(self) -> None:
        super().open()
        self._forget()
        for key, data in self._layers.scan():
            row = decoded(data)
            self._by_key[key] = row.time, size_of(key, row), _to_remember(row.prior)
        self._by_time.update((time, key) for key, (time, _, _) in self._by_key.items())
        self._bytes = sum(size for _, size, _ in self._by_key.values())

    def close(self) -> None:
        super().close()
        self._forget()

    def _forget(self) -> None:
        self._by_key: dict[bytes, Place] = {}
        self._by_time: Any = SortedList()
        self._undo: list[tuple[bytes, Place | None]] = []
        self._bytes = 0

    def held(self) -> tuple[int, int]:
        """Return the number of updates that are kept back, and their bytes. Any thread may ask."""
        return len(self._by_key), self._bytes

    @property
    def first_time(self) -> int:
        """The time of the first update. `FOREVER` if none is kept back."""
        return int(self._by_time[0][0]) if self._by_time else FOREVER

    def put(self, time: int, key: Any, change: Change, context: Context) -> None:
        """Keep an update back. `time` is ignored if an update of the same key is already kept back."""
        data = self._key(key, "put")
        new, old = self._part(change[0]), self._part(change[1])
        before, prior = self._by_key.get(data), old
        if before is not None:
            time, _, prior = before
            if prior is ABSENT:
                prior = prior_of(self._data(data))
        self._layers.put(data, encoded_parts(context, prior, old, new, time))
        self._note(data, (time, size_of_parts(data, context, prior, old, new), _to_remember(prior)))

    def first(self) -> Kept:
        """Return the first update by time. The buffer must not be empty."""
        key = self._by_time[0][1]
        row = decoded(self._data(key))
        new, old = (None if part is None else self._decoded(part) for part in (row.new, row.old))
        return Kept(self._decode_key(key), (new, old), row.context)

    def remove_first(self) -> None:
        """Remove the first update by time. The buffer must not be empty."""
        key = self._by_time[0][1]
        self._layers.put(key, None)
        self._note(key, None)

    def prior(self, key: Any) -> Any:
        """Return the value that the table's row had before its first update that is kept back. `ABSENT` if no update of
        the key is kept back."""
        data = self._key(key, "prior")
        if data not in self._by_key:
            return ABSENT
        prior = prior_of(self._data(data))
        return None if prior is None else self._decoded(prior)

    # -- the order

    def _data(self, key: bytes) -> bytes:
        data = self._layers.get(key)
        assert data is not None  # the order has its key
        return data

    def _part(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return self._encode_value(value)
        except Exception as error:
            self._refused(1, value, error)

    def _note(self, key: bytes, place: Place | None) -> None:
        """Change the place of a key in the order, as a part of the current record. None removes the key."""
        if not self._undo:
            self._layers.join(self)
        self._undo.append((key, self._by_key.get(key)))
        self._place(key, place)

    def _place(self, key: bytes, place: Place | None) -> None:
        before = self._by_key.pop(key, None)
        if before is not None:
            self._bytes -= before[1]
        if place is not None:
            self._by_key[key] = place
            self._bytes += place[1]
        if before is None and place is not None:
            self._by_time.add((place[0], key))
        elif before is not None and place is None:
            self._by_time.remove((before[0], key))

    def merge(self) -> None:
        """Keep the changes of the current record."""
        self._undo.clear()

    def drop_scope(self) -> None:
        """Undo the changes of the current record."""
        for key, before in reversed(self._undo):
            self._place(key, before)
        self._undo.clear()


def _to_remember(prior: bytes | None) -> Any:
    return prior if prior is None or len(prior) <= REMEMBERED_BYTES else ABSENT
