"""The operators that aggregate a stream by key and window of time.

*Guarantees*: windows, the order of updates, timestamps and dropped records are as in Kafka Streams. The highest time
that this operator has seen in its task decides which records are late. It is stored with the committed offsets, so it
continues after a restart. If a record fails, or the task is rolled back, its change of this time is undone. A window
that is emitted when it closes is emitted once, and takes no record after that. How far windows are emitted is stored
with the committed offsets, too. A late record is dropped and counted, or goes to the child that takes late records. The
user's functions may change the values that they are given: each window has its own value and its own aggregate.
*Assumes*: the store is a `WindowTable`. It is `closing` if windows are emitted when they close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from milestones.common.copies import copy_of
from milestones.common.state.cells import UNKNOWN
from milestones.common.topology.operators.aggregates import (
    NULL_KEY_OR_VALUE,
    Aggregator,
    Initializer,
    initial,
    plus_one,
)
from milestones.common.topology.operators.table_rows import forwarding, reads_again
from milestones.common.topology.operators.tables import NULL_KEY
from milestones.common.topology.program import KeepRow, Memory, OperatorContext, Process, TableStore
from milestones.common.topology.windows import SlidingWindows, TimeWindows, UnlimitedWindows
from milestones.common.windowed import Windowed

LATE = "its window has closed"
GONE = "its window is gone from the store, whose changelog was ahead of the committed offsets"
"""Happens under `at_least_once` after a crash: the store already has the times of records that are processed once
more."""

TimedValue = tuple[Any, int]
"""A value and its time, ms."""


class WindowTable(TableStore, Protocol):
    """The methods of a timestamped window store that windowed operators call."""

    def bytes_of(self, key: Any) -> bytes:
        """Serialise a key, for `row_of`."""
        ...

    def row_of(self, key: bytes, start: int) -> tuple[bytes, TimedValue | None]:
        """Return the local key of a window of a serialised key, for `put_row`, and the window's row."""
        ...

    def put_row(self, place: bytes, value: Any, timestamp: int, start: int) -> bytes | None:
        """Set the row at a local key. Returns the value's bytes. Returns None, and sets nothing, if all windows of the
        same segment have expired."""
        ...

    def put_window(self, key: Any, value: Any, timestamp: int, start: int) -> bool:
        """Set the row of a window. A value of None deletes the row, with that time. Returns False, and sets nothing, if
        all windows of the same segment have expired."""
        ...

    def backward_rows(self, key: Any, first: int, last: int) -> Iterator[tuple[int, TimedValue]]:
        """Yield (start, row) of the windows that start between `first` and `last`, the last one first."""
        ...

    def rows(self, key: Any, first: int, last: int) -> Iterator[tuple[int, TimedValue]]:
        """Yield the same as `backward_rows`, the first window first."""
        ...

    def closed_between(self, first: int, last: int) -> Iterator[tuple[Windowed[Any], TimedValue]]: ...


class ClosingStore(Protocol):
    """The method of a window store that finds the windows to emit when they close."""

    def closed_between(self, first: int, last: int) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield the rows whose time is between `first` and `last` (both included), by time, then by key."""
        ...


def _row(_: Windowed[Any], row: TimedValue) -> TimedValue:
    return row


@dataclass(frozen=True)
class WindowAggregate:
    """Aggregates the values of each key and window. `on_close`: each window is emitted once, when it closes. `late`:
    the child that gets the records that came too late for all of their windows."""

    store: str
    windows: TimeWindows | UnlimitedWindows
    initializer: Initializer
    aggregator: Aggregator
    on_close: bool = False
    send_old_values: bool = False
    late: str | None = None

    @property
    def sends_its_row(self) -> bool:
        """True if each update is sent immediately after its row was put."""
        return not self.on_close

    def bind(self, context: OperatorContext) -> Process:
        store: WindowTable = context.store(self.store)
        forward = _no_update if self.on_close else forwarding(context, store, self.send_old_values)
        observed = observed_time(context, self.store, self.on_close, self.windows.grace_ms)
        skip = skipping(context, self.late)
        emit = closing(context, store, self.store, _closed_starts(self.windows)) if self.on_close else None
        bytes_of, row_of, put_row = store.bytes_of, store.row_of, store.put_row
        put = _putting(context, store, forward, self)
        dropped, node, record, send_row = context.dropped, context.node, context.record, context.row_takers.send
        initializer, aggregator = initial(self.initializer), self.aggregator
        again = reads_again(store, forward, self.send_old_values)
        copies = overlap(self.windows) and aggregator is not plus_one  # the count doesn't look at the value
        starts, size_ms, grace_ms = self.windows.starts, self.windows.size_ms, self.windows.grace_ms

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                dropped(node, NULL_KEY)
                return
            now = observed.value
            if timestamp > now:
                now = timestamp
                observed.set(now)
            in_order, closes, closed, taken = timestamp == now, now - grace_ms, 0, False
            data = bytes_of(key)
            for start in starts(timestamp):
                if not in_order and start + size_ms <= closes:
                    closed += 1
                    continue
                taken = True
                place, row = row_of(data, start)
                newest = timestamp
                if row is None:
                    old = initializer()
                else:
                    old, stored = row
                    if stored > newest:
                        newest = stored
                new = aggregator(key, copy_of(value) if copies else value, old)
                if again:
                    old = initializer() if row is None else row_of(data, start)[1][0]  # type: ignore[index]  # there
                if send_row is None or new is None or (encoded := put_row(place, new, newest, start)) is None:
                    put(key, place, start, new, old, newest, timestamp)
                else:
                    send_row(data, place, encoded, newest, record.headers)
            if closed:
                skip(key, value, timestamp, closed, taken)
            if emit is not None:
                emit(closes)

        return process


Put = Callable[[Any, bytes, int, Any, Any, int, int], None]
"""A function that puts the row of a window, and sends the update: (key, the row's local key, start of the window, new
value, old value, the row's time, the record's time)."""


def _putting(context: OperatorContext, store: WindowTable, forward: Process, aggregate: WindowAggregate) -> Put:
    """Make the function that puts the row of a window and sends the update, if no sink sends the very row."""
    put_row, put_window, dropped, node = store.put_row, store.put_window, context.dropped, context.node
    size_ms, send_old_values = aggregate.windows.size_ms, aggregate.send_old_values

    def put(key: Any, place: bytes, start: int, new: Any, old: Any, newest: int, timestamp: int) -> None:
        if new is None:
            taken = put_window(key, None, timestamp, start)
        else:
            taken = put_row(place, new, newest, start) is not None
        if not taken:
            dropped(node, GONE)
        forward(Windowed(key, start, start + size_ms), (new, old) if send_old_values else new, newest)

    keep_row = context.row_takers.keep
    return put if keep_row is None else _keeping(keep_row, store, size_ms, put)


def _keeping(keep_row: KeepRow, store: WindowTable, size_ms: int, put: Put) -> Put:
    """Make the function that puts the row of a window, if only `suppress` gets the update. `put`: puts what isn't kept
    back as a row."""
    put_row = store.put_row

    def keep(key: Any, place: bytes, start: int, new: Any, old: Any, newest: int, timestamp: int) -> None:
        if new is None or (encoded := put_row(place, new, newest, start)) is None:
            put(key, place, start, new, old, newest, timestamp)
        else:
            keep_row(place, start + size_ms, encoded, old, newest)

    return keep


def overlap(windows: TimeWindows | UnlimitedWindows) -> bool:
    """True if a record may be in several windows."""
    return isinstance(windows, TimeWindows) and windows.advance_ms < windows.size_ms


def observed_time(context: OperatorContext, store: str, on_close: bool, after_ms: int) -> Memory:
    """Return the highest time that the operator has seen. If windows are emitted when they close, the result is at
    least `after_ms` later than the time up to which windows were emitted. (They can have closed only at such a time.)
    """
    emitted = context.kept(store).value if on_close else UNKNOWN
    return context.observed_time(UNKNOWN if emitted == UNKNOWN else emitted + after_ms)


Skip = Callable[[Any, Any, int, int, bool], None]
"""A function of (key, value, timestamp, number of the record's windows that have closed, True if another window has
taken the record)."""


def skipping(context: OperatorContext, child: str | None) -> Skip:
    """Make a function for a record that comes after some of its windows have closed. If no window takes the record, and
    there is a child for late records, it goes there. Otherwise it is counted as dropped, once per closed window."""
    dropped, node = context.dropped, context.node
    late = None if child is None else context.forward_to(child)

    def skip(key: Any, value: Any, timestamp: int, closed: int, taken: bool) -> None:
        if taken or late is None:
            for _ in range(closed):
                dropped(node, LATE)
        else:
            late(key, value, timestamp)

    return skip


def _no_update(key: Any, value: Any, timestamp: int) -> None:
    """Do nothing: windows are emitted when they close."""


def _closed_starts(windows: TimeWindows | UnlimitedWindows) -> Callable[[int, int], tuple[int, int]]:
    """Make a function that returns the first and the last start of the windows that have closed between two times."""
    size_ms = windows.size_ms

    def closed(before: int, closes: int) -> tuple[int, int]:
        return (0 if before < 0 else max(0, before - size_ms + 1)), closes - size_ms

    return closed


def closing(
    context: OperatorContext,
    store: ClosingStore,
    name: str,
    closed: Callable[[int, int], tuple[int, int]],
    result: Callable[[Windowed[Any], Any], TimedValue] = _row,
) -> Callable[[int], None]:
    """Make a function that emits the windows that have closed up to a time. `closed(before, closes)` returns the first
    and the last time of the windows that have closed between these two times. `result` makes value and timestamp of a
    window's row."""
    emitted, forward = context.kept(name), context.forward

    def emit(closes: int) -> None:
        before = emitted.value
        if closes <= before:
            return
        first, last = closed(before, closes)
        if last < 0:
            return
        for windowed, row in store.closed_between(first, last):
            value, timestamp = result(windowed, row)
            forward(windowed, (value, None), timestamp)
        emitted.set(closes)

    return emit


@dataclass(frozen=True)
class SlidingWindowAggregate:
    """Aggregates the values of each key and sliding window: of all records that are at most `difference_ms` apart.

    Each record makes two windows. Its *left* window ends with the record. Its *right* window begins one ms after the
    record.
    """

    store: str
    windows: SlidingWindows
    initializer: Initializer
    aggregator: Aggregator
    on_close: bool = False
    send_old_values: bool = False
    late: str | None = None

    def bind(self, context: OperatorContext) -> Process:
        store: WindowTable = context.store(self.store)
        forward = _no_update if self.on_close else forwarding(context, store, self.send_old_values)
        difference_ms, grace_ms = self.windows.difference_ms, self.windows.grace_ms
        observed, skip = observed_time(context, self.store, self.on_close, grace_ms), skipping(context, self.late)
        dropped, node = context.dropped, context.node
        emit = closing(context, store, self.store, self._closed) if self.on_close else None
        sliding = _Sliding(store, forward, self, partial(dropped, node, GONE))

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                dropped(node, NULL_KEY_OR_VALUE)
                return
            if timestamp > observed.value:
                observed.set(timestamp)
            closes = observed.value - grace_ms
            if timestamp + 1 + difference_ms <= closes:
                skip(key, value, timestamp, 1, False)
                return
            sliding.closed, sliding.taken = 0, False
            take = sliding.take_early if timestamp < difference_ms else sliding.take
            take(key, value, timestamp, closes)
            if sliding.closed:
                skip(key, value, timestamp, sliding.closed, sliding.taken)
            if emit is not None:
                emit(closes)

        return process

    def _closed(self, before: int, closes: int) -> tuple[int, int]:
        difference_ms = self.windows.difference_ms
        return (0 if before < 0 else max(0, before - difference_ms)), closes - difference_ms - 1


class _Sliding:
    """Changes and makes the windows of one record. `taken`: True if a window has taken the record. `closed`: the number
    of windows that haven't taken the record, because they have closed."""

    def __init__(
        self, store: WindowTable, forward: Process, aggregate: SlidingWindowAggregate, gone: Callable[[], None]
    ) -> None:
        self._store, self._forward, self._gone = store, forward, gone
        self.closed, self.taken = 0, False
        self._initializer, self._aggregator = initial(aggregate.initializer), aggregate.aggregator
        self._difference_ms, self._send_old_values = aggregate.windows.difference_ms, aggregate.send_old_values
        self._sends_copies = reads_again(store, forward, aggregate.send_old_values)

    def take(self, key: Any, value: Any, timestamp: int, closes: int) -> None:
        """Add a record whose left window doesn't begin before 0. The record's windows are read backwards, the last one
        first."""
        difference_ms = self._difference_ms
        starts: set[int] = set()
        left: TimedValue | None = None
        right: TimedValue | None = None
        has_left = has_right = False
        previous: int | None = None
        for start, row in self._store.backward_rows(key, max(0, timestamp - 2 * difference_ms), timestamp + 1):
            starts.add(start)
            end, newest = start + difference_ms, row[1]
            if start == timestamp + 1:
                has_right = True
            elif end > timestamp:
                right = right or _kept(row, timestamp)
                self._add(key, value, timestamp, start, row, closes)
            elif end == timestamp:
                has_left = True
                self._add(key, value, timestamp, start, row, closes)
                if newest >= timestamp:
                    return  # another record of this time has made all windows
                previous = newest
            else:
                left, previous = row, newest
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + difference_ms >= timestamp:
            self._add(key, value, timestamp, previous + 1, (self._initializer(), timestamp), closes)
        if not has_left:
            begins = timestamp - difference_ms
            follows = previous is not None and begins <= previous and left is not None
            aggregate = left[0] if follows and left is not None else self._initializer()
            self._add(key, value, timestamp, begins, (aggregate, timestamp), closes)
        if not has_right:
            self._make_right(key, timestamp, right)

    def take_early(self, key: Any, value: Any, timestamp: int, closes: int) -> None:
        """Add a record whose left window would begin before 0. The window that starts at 0 contains all such records.
        """
        starts: set[int] = set()
        combined: TimedValue | None = None
        right: TimedValue | None = None
        has_right = False
        previous: int | None = None
        for start, row in self._store.rows(key, 0, timestamp + 1):
            starts.add(start)
            if start == 0:
                combined = row
                if row[1] < timestamp:
                    previous = row[1]
            elif start <= timestamp:
                right = _kept(row, timestamp)
                self._add(key, value, timestamp, start, row, closes)
            else:
                has_right = True
        if right is None and combined is not None and combined[1] > timestamp:
            right = _kept(combined, timestamp)
        if not has_right:
            self._make_right(key, timestamp, right)
        if previous is not None and previous + 1 not in starts:
            self._add(key, value, timestamp, previous + 1, (self._initializer(), timestamp), closes)
        self._add(key, value, timestamp, 0, combined or (self._initializer(), timestamp), closes)

    def _make_right(self, key: Any, timestamp: int, right: TimedValue | None) -> None:
        """Make the right window of the record, from the later records in a window around the record."""
        if right is not None and right[1] > timestamp:
            self._put(key, timestamp + 1, None, right[0], right[1], right[1])

    def _add(self, key: Any, value: Any, timestamp: int, start: int, row: TimedValue, closes: int) -> None:
        """Add the record to a window. A sliding window includes its end, so it closes one ms later than other
        windows."""
        if start + self._difference_ms < closes:
            self.closed += 1
            return
        self.taken = True
        old, stored = row
        sent = copy_of(old) if self._sends_copies else old
        if self._aggregator is not plus_one:  # the count doesn't look at the value
            value = copy_of(value)
        new, newest = self._aggregator(key, value, old), timestamp if old is None else max(timestamp, stored)
        self._put(key, start, sent, new, newest, timestamp if new is None else newest)

    def _put(self, key: Any, start: int, old: Any, new: Any, timestamp: int, logged: int) -> None:
        if not self._store.put_window(key, new, logged, start):
            self._gone()
        windowed = Windowed(key, start, start + self._difference_ms)
        self._forward(windowed, (new, old) if self._send_old_values else new, timestamp)


def _kept(row: TimedValue, timestamp: int) -> TimedValue:
    """Return a copy of a window's row, made before the aggregator may change the row. The row is copied only if it has
    later records, as its value is used only then."""
    return (copy_of(row[0]), row[1]) if row[1] > timestamp else row
