"""`KeyViews`: the rows of the keys in use of a window or session store, from a time on.

    a read of a key, from a time on
      |-- the key has a view that reaches back to this time: its rows
      |-- it has no view, and the time is `KeyViews.since` or later: it has no rows
      +-- otherwise: its rows are read from the layers, and become its view

For example, a session store is asked for each record which sessions of the key end after a time. The rows are in
several layers, in the engine, and in several segments. A view answers from one list. A key that comes for the first
time needs no read either, because the views have a time of their own, `since`: *a key without a view has no row of that
time or later*.

*Guarantees*: a view has exactly the rows that the layers have at the same moment, with those of the current record. The
views of a store take the bytes that they are given, whatever its keys and rows are. Any thread may drop all views at
any time (`ViewCache.clear`). The store then begins with new ones, whose `since` is later than all of its rows.
*Assumes*: one thread reads, writes and forgets, the thread that has the task. Each write of the store is passed to
`write`, or its key to `forget`. Times are not negative.

*Why this way*: two generations keep the bound. A view that is used moves to the younger generation. When this one is
full, the older one is dropped, and the younger one takes its place. So each row of a dropped view was written before
the former turn, and `since` rises to the highest time that the store had seen then. A full cache costs reads, and never
a wrong answer. If the keys in use are many times those that find room, almost no view is used before it is dropped: the
store does without views for a while (`ViewCache.rest`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from milestones.common.state.layers import ABSENT
from milestones.common.state.read_cache import ReadCache, ReadCaches
from milestones.common.state.stores.window_layouts import BY_TIME, SEGMENT
from milestones.common.windowed import FOREVER

VIEW_BYTES: Final = 280
"""Memory of a view besides its key's bytes: the objects' headers, and its slot of the dict."""

ROW_BYTES: Final = 260
"""Memory of a row besides the bytes of its local key and of its value: a list, two numbers, the headers of bytes. The
value is counted twice, as it may be remembered decoded, too."""

MOST_ROWS: Final = 256
"""A key with more rows has no view: its rows are read from the layers, only those that are asked for."""

USELESS: Final = 6
"""Views are useless if this many keys were read for each one that was found in the older generation. A read of a view
costs more than a read without views, and a found one saves about as much as two reads."""

LEAST_READS: Final = 64
"""After fewer reads nothing is said about the use of views."""

REST: Final = 32
"""A store whose views were useless does without them for this many times the reads of a generation. Then it tries them
anew."""

PART: Final = 8
"""A view may take the store's bytes, divided by this number. A view that would take more isn't kept."""

FEW: Final = 16
"""A view with at most this number of rows is looked through row by row. A longer one drops rows that have expired."""

_HEAD: Final = SEGMENT.size

ViewedRow = list[Any]
"""[first number of the tail, second number, local key, local value, decoded value]. The first number is the row's time:
the start of a window, or the end of a session. The decoded value is `layers.ABSENT` if it isn't remembered."""


def bytes_of(row: ViewedRow) -> int:
    """Estimate the memory of a row."""
    return ROW_BYTES + len(row[2]) + 2 * len(row[3])


class KeyView:
    """The rows of one key whose time is `since` or later, in the order of their tails. `key`: the key's bytes. `bytes`:
    the memory of the rows."""

    __slots__ = ("bytes", "key", "rows", "since")

    def __init__(self, key: bytes, since: int, rows: list[ViewedRow], size: int) -> None:
        """`size`: the memory of the rows."""
        self.key, self.since, self.rows, self.bytes = key, since, rows, size

    def between(self, first: int, last: int) -> list[ViewedRow]:
        """Return the rows whose time is from `first` to `last`, both included."""
        return self.rows[bisect_left(self.rows, [first]) : bisect_left(self.rows, [last + 1])]


UNKNOWN: Final = KeyView(b"", FOREVER + 1, [], 0)
"""Stands for the view of a key whose rows must be read."""

TOO_LONG: Final = KeyView(b"", FOREVER + 1, [], 0)
"""Stands for the view of a key that has too many rows for a view."""


class KeyViews:
    """*Owns*: the views of one store, by the key's bytes. `young`: the younger generation, in which the store looks
    before it calls `find`. `bytes`: the memory of the younger generation. `reads`: the number of keys whose rows the
    store had to read since the last turn."""

    __slots__ = ("_found", "_older", "_older_bytes", "_seen", "bytes", "caches", "reads", "since", "young")

    def __init__(self, since: int, caches: ReadCaches) -> None:
        """`since`: no row of the store has this time or a later one."""
        self.since, self.caches = since, caches
        self.young: dict[bytes, KeyView] = {}
        self._older: dict[bytes, KeyView] = {}
        self.bytes = self._older_bytes = 0
        self.reads = self._found = 0
        self._seen = since - 1
        """The highest time that the store had seen at the last turn."""

    @property
    def all_bytes(self) -> int:
        """Estimate the memory of all views."""
        return self.bytes + self._older_bytes

    def find(self, key: bytes) -> KeyView | None:
        """Return the view of `key` from the older generation, and move it to the younger one. The caller has looked
        into `young` before."""
        view = self._older.pop(key, None)
        if view is not None:
            size = VIEW_BYTES + len(key) + view.bytes
            self._older_bytes -= size
            self.bytes += size
            self.young[key] = view
            self._found += 1
        return view

    def set(self, key: bytes, view: KeyView) -> bool:
        """Set the view of `key`, in place of the one that it may have. A view that is too large isn't kept. Returns as
        `write`."""
        if view.bytes > self.caches.share // PART or len(view.rows) > MOST_ROWS:
            view = TOO_LONG
        former = self.young.get(key) or self.find(key)
        self.young[key] = view
        self.bytes += view.bytes - former.bytes if former is not None else VIEW_BYTES + len(key) + view.bytes
        return self.bytes > self.caches.share * 3 // PART

    def forget(self, key: bytes) -> None:
        """Let the next look at `key` read its rows from the layers."""
        self.set(key, UNKNOWN)

    def write(self, key: bytes, row: ViewedRow, earliest: int) -> bool:
        """Note that a row was put. A row whose local value is None was deleted. `earliest`: the earliest time of a row
        that a reader may see. Returns True if the views have become full (see `turn`)."""
        time, _, place, stored, _ = row
        view = self.young.get(key) or self.find(key)
        if view is None:
            if time >= self.since and stored is not None:
                self.set(key, KeyView(key, self.since, [row], bytes_of(row)))
        elif time >= view.since:
            rows = view.rows
            if stored is not None and (not rows or rows[-1][0] < time):
                rows.append(row)
                grown = ROW_BYTES + len(place) + 2 * len(stored)
            else:
                grown = _exchange(rows, row)
            view.bytes += grown
            self.bytes += grown
            if len(rows) > FEW or view.bytes * PART > self.caches.share:  # a division costs more
                self._shorten(view, earliest)
        return self.bytes * PART > self.caches.share * 3

    def replace(self, key: bytes, former: Sequence[ViewedRow], row: ViewedRow | None, seen: int) -> bool:
        """Note that `row` took the place of the rows `former`. None: they were deleted. `seen`: the latest time of a
        row that no reader may see. Returns as `write`."""
        view = self.young.get(key) or self.find(key)
        if row is not None and view is not None and len(former) == 1 and len(view.rows) == 1:
            old = view.rows[0]
            if old[2] is former[0][2] and row[0] >= view.since:  # most often: the key's one session grows
                grown = 2 * (len(row[3]) - len(old[3]))
                if not grown or view.bytes + grown <= self.caches.share // PART:
                    view.rows[0] = row
                    view.bytes += grown
                    self.bytes += grown
                    return self.bytes > self.caches.share * 3 // PART
        for old in former:
            self.write(key, [*old[:3], None, ABSENT], seen + 1)
        return row is not None and self.write(key, row, seen + 1)

    def _shorten(self, view: KeyView, earliest: int) -> None:
        """Drop rows that no reader may see. If the view is still too large, drop the view."""
        gone = bisect_left(view.rows, [earliest])
        if gone:
            size = sum(map(bytes_of, view.rows[:gone]))
            del view.rows[:gone]
            view.bytes -= size
            self.bytes -= size
            view.since = max(view.since, earliest)
        self.set(view.key, view)

    @property
    def useless(self) -> bool:
        """True if almost no view was used in the present generation. Of the first one this isn't known, because each of
        its keys must be read."""
        return bool(self._older) and self.reads > max(LEAST_READS, USELESS * self._found)

    def turn(self, seen: int) -> None:
        """Drop the older generation, and let the younger one take its place. The store calls this when the views are
        full: when the younger generation has half of the store's bytes, or will have it with one more view. `seen`: the
        highest time of the rows that were put so far."""
        if self._older:
            self.since = max(self.since, self._seen + 1)
        self._older, self._older_bytes = self.young, self.bytes
        self.young, self.bytes, self._seen = {}, 0, seen
        self.reads = self._found = 0
        if self._older_bytes > self.caches.share // 2:  # a look may move much to the younger generation at once
            self.since = max(self.since, seen + 1)
            self._older, self._older_bytes = {}, 0


def _exchange(rows: list[ViewedRow], row: ViewedRow) -> int:
    """Put a row into its place among `rows`, or take it out if it was deleted. Returns by how many bytes `rows` have
    grown."""
    at = bisect_left(rows, row[:2])
    grown = -bytes_of(rows.pop(at)) if at < len(rows) and rows[at][:2] == row[:2] else 0
    if row[3] is not None:
        rows.insert(at, row)
        grown += bytes_of(row)
    return grown


class ViewCache(ReadCache):
    """The remembered values of one store, and the views of its keys.

    `views`: None until the store begins to use views. A store whose views were dropped finds None there, too.
    *Concurrency*: `views` is replaced as a whole. The store's thread may work on at views that were just dropped. What
    it writes there is lost with them, and the new views begin behind it."""

    __slots__ = ("_rest", "_tail_bytes", "views")

    def __init__(self, caches: ReadCaches, tail_bytes: int, *, values_too: bool) -> None:
        """`tail_bytes`: the bytes of the tails of the store's keys. `values_too`: True if the store remembers values
        besides views: then it has a share for each."""
        self._tail_bytes = tail_bytes
        self.views: KeyViews | None = None
        self._rest = 0
        super().__init__(caches, 2 if values_too else 1)

    @property
    def useful(self) -> bool:
        """False if the instance remembers nothing."""
        return self._caches.max_bytes > 0

    def begin_views(self, since: int) -> KeyViews:
        """Begin with no views. No row of the store has the time `since` or a later one."""
        self.views = views = KeyViews(since, self._caches)
        return views

    def rest(self, looks: int) -> None:
        """Do without views for this many looks at a key."""
        self.views, self._rest = None, looks

    def rests(self) -> bool:
        """Note a look at a key while there are no views. Returns True if the store still does without them."""
        self._rest -= 1
        return self._rest >= 0

    def memory_bytes(self) -> int:
        views = self.views
        return super().memory_bytes() + (0 if views is None else views.all_bytes)

    def forget(self, key: bytes) -> None:
        self.forget_value(key)
        views = self.views
        if views is not None and key[:_HEAD] != BY_TIME:
            views.forget(key[_HEAD : -self._tail_bytes])

    def clear(self) -> None:
        self.views = None
        super().clear()
