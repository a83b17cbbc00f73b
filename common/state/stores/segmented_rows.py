"""Rows that expire after a time (the retention). `SegmentedRows` is the common base of window and session stores.

A row's full key is the user's key and a *tail*. The tail has two numbers, and one of them is the row's time.

*Guarantees*: a row expires when its time is earlier than the highest time that the store has seen by the retention or
more. No read shows an expired row. If all rows of a segment have expired, a write into it is dropped, and reaches
neither the changelog nor the layers. A read shows the rows at the time of the call, uncommitted ones included.
Reads of one key are answered from the views of the store's keys (`key_views.py`), if it has views.
The order of rows is that of Kafka Streams. Rows of one key are in the order of their tails. Rows of several keys are in
the order of their segments, then of the keys' bytes. A store in memory sorts by time, then by the keys' bytes.
All other guarantees are those of `rows.py`.
*Assumes*: as `rows.py`. Times are not negative.

*Why this way*: the highest time is a committed time (`cells.py`). A time that begins anew in each process would show
rows once more that had already expired (docs/decisions/0009-committed-times.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar

from milestones.common.state.layers import ABSENT
from milestones.common.state.stores.key_views import REST, TOO_LONG, KeyView, KeyViews, ViewCache, ViewedRow, bytes_of
from milestones.common.state.stores.rows import REMEMBERED_BYTES, Rows, StoreParts
from milestones.common.state.stores.window_layouts import (
    BY_TIME,
    SEGMENT,
    TimeOrder,
    by_time_between,
    present_segments,
    span,
)
from milestones.common.state.times import observed_time
from milestones.common.type_variables import K, V
from milestones.common.windowed import FOREVER, Windowed

Found = Iterator[tuple[Windowed[Any], Any]]

HEAD = SEGMENT.size
SEGMENTS_USED = 16
"""The most segments whose bytes a store keeps at hand."""


class SegmentedRows(Rows[K, V]):
    """Rows by key and tail. The `open` of a subclass defines how key and tail are serialised."""

    __slots__ = (
        "_begins", "_cells", "_closing", "_encode_alone", "_ends", "_highest", "_in_memory", "_newest_segment",
        "_observed", "_of_segment", "_retention_ms", "_segment_ms", "_segments_used", "_view_cache",
    )  # fmt: skip

    tail: ClassVar[struct.Struct]
    order: ClassVar[TimeOrder]

    most_tail: ClassVar[bytes]
    """The greatest tail."""

    _shown_value = Rows._decoded
    """Decodes a local value to the value that user code sees."""

    def __init__(self, parts: StoreParts) -> None:
        spec = parts.spec
        self._retention_ms, self._segment_ms, self._closing = spec.retention_ms, spec.segment_ms, spec.closing
        self._observed = parts.cells.time(observed_time(spec.name))
        self._cells, self._in_memory = parts.cells, not spec.persistent
        cache = parts.read_cache
        self._view_cache: ViewCache | None = cache if isinstance(cache, ViewCache) and cache.useful else None
        self._highest = -1
        """The highest time of a row that the store may have."""
        self._begins = self._ends = 0
        self._of_segment = b""
        """The bytes of the segment that was used last, whose times are from `_begins` on and before `_ends`."""
        self._segments_used: dict[int, tuple[bytes, int, int]] = {}
        """These three by number, for the segments that were used last. A record of hopping windows uses several."""
        self._newest_segment = 0
        """The newest segment that had rows when the store was opened. The rows of this segment may be later than the
        store's time."""
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        self._encode_alone = self._encode_key
        newest = next(self._layers.scan(None, BY_TIME, reverse=True), None)
        self._highest = -1
        if newest is not None:
            (self._newest_segment,) = SEGMENT.unpack_from(newest[0])
            begins = self._newest_segment * self._segment_ms
            self._highest = begins + self._segment_ms - 1
            # The last commit may have no time of this store (for example a commit of Kafka Streams). Then the rows give
            # a lower bound of the time, so that rows that had expired stay invisible.
            if self._observed.value < begins and not self._cells.exact:
                self._cells.begin(observed_time(self.name), begins)
        cache = self._view_cache
        if cache is not None:
            cache.views = None  # an earlier program may have left them, and a restoration may have written since
            if self._views_from_start():
                self._begin_views(cache)

    def close(self) -> None:
        super().close()
        self._encode_alone = self._not_open

    def closed_between(self, first: int, last: int) -> Found:
        """Yield the rows whose time is from `first` to `last` (both included), by time, then by the keys' bytes.

        Only for a store with `StoreSpec.closing`. Rows that have expired with the newest write are yielded, too: their
        windows close with the same write."""
        self._check_open()
        for local, _ in self._layers.scan(*by_time_between(first, last)):
            key = self.order.row_of(local)
            row = SEGMENT.pack(self.order.time_of(key) // self._segment_ms) + key
            value = self._layers.get(row)
            if value is not None:
                yield self._decode_key(row), self._decoded(value)

    @property
    def _earliest(self) -> int:
        """The earliest time of a row that a reader may see."""
        return int(self._observed.value) - self._retention_ms + 1

    def _visible_from(self, time: int) -> int:
        """Return the earliest time of a row that a reader may see, but `time` if that is later."""
        earliest: int = self._observed.value - self._retention_ms + 1
        if earliest < time:
            earliest = time
        return earliest if earliest > 0 else 0

    def _may_put(self, time: int) -> bool:
        """Note the time of a write. Returns False if the row's segment has expired: then the write is dropped."""
        observed = self._observed.value
        if time >= observed:
            if time > observed:
                self._observed.set(time)
            return True
        # the same computation as in `first_segment`
        return bool(time // self._segment_ms >= (observed - self._retention_ms) // self._segment_ms)

    def _note_closing(self, place: bytes, *, there: bool) -> None:
        """Update the index by time for a write to the local key `place`. Only for a store with `StoreSpec.closing`."""
        self._layers.put(self.order.place(place[HEAD:]), b"" if there else None)

    def _place(self, row: Any) -> bytes:
        """Return the local key of a row."""
        try:
            return self._encode_key(row)
        except Exception as error:
            self._refused(0, row[0], error)

    def _put_unread(self, place: bytes, value: Any) -> None:
        """Set the value at the local key `place`, and don't remember it: the store is read by ranges of rows, so a
        remembered value would never be used."""
        timestamp = self._record.timestamp
        if value is None:
            return self._delete(place, timestamp)
        try:
            encoded = self._encode_value(value)
        except Exception as error:
            self._refused(1, value, error)
        self._log(place, encoded, timestamp)
        self._layers.put(place, encoded)
        self._note_place(place, encoded)
        return None

    def _delete(self, data: bytes, timestamp: int) -> None:
        self._log(data, None, timestamp)
        self._layers.put(data, None)
        self._read_cache.forget_value(data)
        self._note_place(data, None)

    # -- views of keys

    def _views_from_start(self) -> bool:
        """True: the store has views from its opening on. False: from its first read of a range of one key on."""
        return False

    def _begin_views(self, cache: ViewCache) -> KeyViews:
        return cache.begin_views(self._highest + 1)

    def _view(self, key: bytes, since: int) -> KeyView | None:
        """Return the view of a key that has all rows of this key whose time is `since` or later. Reads them from the
        layers if they aren't known. None if the store has no views, or if the key has too many rows."""
        cache = self._view_cache
        if cache is None:
            return None
        views = cache.views
        if views is None:
            if cache.rests():
                return None
            views = self._begin_views(cache)
        view = views.young.get(key) or views.find(key)
        if view is None:
            if since >= views.since:
                return KeyView(key, views.since, [], 0)
        elif view.since <= since:
            return view
        elif view is TOO_LONG:
            return None
        return self._read_view(views, key, since)

    def _read_view(self, views: KeyViews, key: bytes, since: int) -> KeyView | None:
        tails = self.tail.pack(since, 0), self.most_tail
        found = self._few_of_key(key, self._segments((since, FOREVER)), tails)
        view = None if found is None else self._as_view(key, since, found)
        views.reads += 1
        if views.set(key, TOO_LONG if view is None else view):
            self._turn(views)
        return view

    def _turn(self, views: KeyViews) -> None:
        """Make room for views, or do without them for a while if almost none was used."""
        cache = self._view_cache
        if cache is not None and views.useless:
            cache.rest(REST * views.reads)
        else:
            views.turn(self._highest)

    def _as_view(self, key: bytes, since: int, found: Iterable[tuple[bytes, bytes]]) -> KeyView:
        """Make a view of the rows of a key that were read from the layers."""
        unpack, length = self.tail.unpack_from, self.tail.size
        rows = [[*unpack(local, len(local) - length), local, stored, ABSENT] for local, stored in found]
        return KeyView(key, since, rows, sum(map(bytes_of, rows)))

    def _note_row(self, key: bytes, row: ViewedRow) -> None:
        """Note that a row of `key` was put, or deleted if its local value is None, in the view of the key."""
        if row[0] > self._highest:
            self._highest = row[0]
        views = None if self._view_cache is None else self._view_cache.views
        if views is not None and views.write(key, row, self._observed.value - self._retention_ms + 1):
            self._turn(views)

    def _head(self, time: int) -> bytes:
        """Return the bytes of the segment of a row of this time."""
        if not self._begins <= time < self._ends:  # two comparisons cost less than a division
            number = time // self._segment_ms
            segment = self._segments_used.get(number)
            if segment is None:
                if len(self._segments_used) == SEGMENTS_USED:
                    self._segments_used.clear()
                begins = number * self._segment_ms
                segment = SEGMENT.pack(number), begins, begins + self._segment_ms
                self._segments_used[number] = segment
            self._of_segment, self._begins, self._ends = segment
        return self._of_segment

    def _note_place(self, place: bytes, stored: bytes | None) -> None:
        """Note a write to a local key in the view of its key."""
        if self._view_cache is None:
            return
        length = self.tail.size
        first, second = self.tail.unpack_from(place, len(place) - length)
        self._note_row(place[HEAD:-length], [first, second, place, stored, ABSENT])

    def _value_of(self, row: ViewedRow) -> Any:
        """Return the value of a view's row. An immutable value is decoded once."""
        value = row[4]
        if value is ABSENT:
            value = self._decoded(row[3])
            if self.immutable and len(row[3]) <= REMEMBERED_BYTES:
                row[4] = value
                self._exact_type = self._type_to_remember(value)
        return value

    # -- rows of one key

    def _of_key(
        self, key: bytes, times: tuple[int, int], tails: tuple[bytes, bytes], *, reverse: bool = False
    ) -> Iterable[tuple[bytes, bytes]]:
        """Return local keys and values of the rows of one key, at the time of this call, in the order of their
        tails.

        `times`: the first and the last time whose segments are read. `tails`: the first and the last tail. All bounds
        are included."""
        view = self._view(key, times[0])
        if view is None:
            return self._read_key(key, times, tails, reverse=reverse)
        found = [(row[2], row[3]) for row in view.between(*times)]
        if reverse:
            found.reverse()
        return found

    def _few_of_key(
        self, key: bytes, numbers: Sequence[int], tails: tuple[bytes, bytes]
    ) -> list[tuple[bytes, bytes]] | None:
        """Return the rows of one key in these segments, in the order of their tails. None if there are many."""
        found: list[tuple[bytes, bytes]] = []
        for number in numbers:
            few = self._layers.scan_bounded(SEGMENT.pack(number) + key, *tails)
            if few is None:
                return None
            found += few
        return found

    def _read_key(
        self, key: bytes, times: tuple[int, int], tails: tuple[bytes, bytes], *, reverse: bool = False
    ) -> Iterable[tuple[bytes, bytes]]:
        """Return what `_of_key` returns, from the layers."""
        numbers = self._segments(times)
        found = self._few_of_key(key, numbers, tails)
        if found is None:
            return self._many_of_key(key, numbers, tails, reverse=reverse)
        if reverse:
            found.reverse()
        return found

    def _many_of_key(
        self, key: bytes, numbers: Sequence[int], tails: tuple[bytes, bytes], *, reverse: bool
    ) -> Iterable[tuple[bytes, bytes]]:
        spans = [span(number, key + tails[0], key + tails[1]) for number in numbers]
        if reverse:
            spans.reverse()
        scans = [self._layers.scan(*one, reverse=reverse) for one in spans]
        size = HEAD + len(key) + self.tail.size
        return (entry for entry in chain.from_iterable(scans) if len(entry[0]) == size)

    def _found(
        self,
        keys: tuple[bytes | None, bytes | None],
        times: tuple[int, int],
        tails: tuple[bytes, bytes],
        wanted: Callable[[int, int], bool],
        *,
        reverse: bool,
    ) -> Found:
        """Yield the rows of a range of keys for whose tail `wanted` returns True.

        `keys`: the bytes of the first and the last key (both included, None: no bound). `times`: the first and the last
        time whose segments are read. `tails`: the least and the greatest tail for which `wanted` may return True."""
        least, most = keys
        if least is not None and least == most:
            rows = self._of_key(least, times, tails, reverse=reverse)
            return self._decoded_rows(self._by_time(rows, reverse=reverse) if self._in_memory else rows, wanted)
        numbers = self._segments(times)
        if reverse:
            numbers = numbers[::-1]
        scans = [self._layers.scan(*span(number, least or b"", None), reverse=reverse) for number in numbers]
        segments = (self._by_time(scan, reverse=reverse) for scan in scans) if self._in_memory else scans
        return self._decoded_rows(_within(segments, least, most, self.tail.size), wanted)

    def _by_time(self, rows: Iterable[tuple[bytes, bytes]], *, reverse: bool) -> list[tuple[bytes, bytes]]:
        """Sort the rows by time, then by the keys' bytes."""
        length, unpack, order = self.tail.size, self.tail.unpack_from, self.order.in_memory

        def place(row: tuple[bytes, bytes]) -> tuple[int, bytes, int]:
            local = row[0]
            first, second = unpack(local, len(local) - length)
            return first, local[HEAD:-length], order * second

        return sorted(rows, key=place, reverse=reverse)

    def _segments(self, times: tuple[int, int]) -> Sequence[int]:
        """Return the segments from the first to the last of these times, both included."""
        last = min(times[1] // self._segment_ms, max(self._observed.value // self._segment_ms, self._newest_segment))
        return present_segments(self._layers.scan, times[0] // self._segment_ms, last)

    def _decoded_rows(self, rows: Iterable[tuple[bytes, bytes]], wanted: Callable[[int, int], bool]) -> Found:
        length, unpack = self.tail.size, self.tail.unpack_from
        for local, value in rows:
            if wanted(*unpack(local, len(local) - length)):
                yield self._decode_key(local), self._shown_value(value)

    def _keys(self, first: Any, last: Any, call: str) -> tuple[bytes | None, bytes | None]:
        """Serialise the first and the last key. None stays None. Raises `StateError` if the store isn't open."""
        self._check_open()
        least = None if first is None else self._key_alone(first, call)
        if last is first:
            return least, least
        return least, None if last is None else self._key_alone(last, call)

    def _key_alone(self, key: Any, call: str) -> bytes:
        if key is None:
            raise self._no_key(call)
        try:
            return self._encode_alone(key)
        except Exception as error:
            self._refused(0, key, error)

    def _given(self, key: Any, call: str) -> None:
        if key is None:
            raise self._no_key(call)


def _within(
    scans: Iterable[Iterable[tuple[bytes, bytes]]], least: bytes | None, most: bytes | None, tail_bytes: int
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries whose key is from `least` to `most` (both included, None: no bound). The key is the local key
    without segment and tail."""
    for local, value in chain.from_iterable(scans):
        key = local[HEAD:-tail_bytes]
        if (least is None or key >= least) and (most is None or key <= most):
            yield local, value
