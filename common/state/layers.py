"""The layers of uncommitted writes between a store's users and its engine. Keys and values are bytes.

            put                 end of record            commit               Kafka confirmed
    user ---------> scope ---------merge------> overlay --freeze--> frozen --------applied-------> engine
                      | the record failed          ^                  |
                      v                            +------thaw--------+  the commit failed, keep it for the next
                    dropped

*Guarantees*: a read asks the layers in this order: scope, overlay, frozen layer, engine. The first layer that has the
key answers; the value None stands for a deletion. A scan shows the entries of the moment of its call, in byte order. A
reader finds every entry in at least one layer at any time: `freeze` sets the frozen layer before it empties the
overlay, and `applied` is called after the engine has all entries of the frozen layer. A thawed layer becomes the
overlay. A thawed layer also stays the frozen layer until the next commit, so that a concurrent reader doesn't miss its
entries. A store may keep its changed rows unpacked until the next commit (`Unpacked`), and answer for them
itself.
*Assumes*: one thread reads, puts and merges. `merge`, `freeze` and `thaw` exclude each other (the task's lock).

*Why this way*: the engine must hold confirmed writes only, so that no crash or roll-back wipes a store
(docs/decisions/0005-write-after-confirmation.md).
- The scope is a layer of its own, because a record that fails in the middle must leave no write.
- Overlay and frozen layer are two, because the task goes on while Kafka confirms a commit.
- A key that comes and goes between two commits, such as the former bounds of a session, is never written to the engine.
- Layers hold bytes, so that user code can't change a value after its `put`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, Protocol

from milestones.common.errors import MilestonesError
from milestones.common.state.engine import Batch, Namespace

log: Final = logging.getLogger(__name__)

ABSENT: Final[Any] = object()
"""The answer of a layer that doesn't have the key. (None would mean that the layer deletes the key.)"""

ENTRY_OVERHEAD_BYTES = 170
"""Memory of an uncommitted entry besides its key and value: two bytes objects' headers and a dict's slot."""

HEAD_BYTES = 250
"""Memory of an entry's place in the index by head (`Layer.keys_of`): slices of its key, a list, slots."""

FRESH_BYTES = 70
"""Memory of an entry's place in `Layer.fresh`: the slot of a set that is half empty."""

_FEW = 16
_MOST = 256
"""The most entries of one head that `scan_bounded` reads from the engine."""


class Staging(Protocol):
    """A buffer with writes of the current record. The buffer is merged if the record succeeds, and dropped if the
    record fails."""

    def merge(self) -> None:
        """Move the record's writes to the boundary, because the record is finished."""
        ...

    def drop_scope(self) -> None:
        """Drop the record's writes, because the record failed."""
        ...


class Unpacked(Protocol):
    """A typed store that keeps the parts of the rows which it has changed since the last commit. It makes the bytes of
    these rows at the commit, once per row."""

    def pack(self) -> dict[bytes, bytes | None]:
        """Return the rows that have changed since the last commit, None for a deleted row."""
        ...

    def packed(self) -> None:
        """Drop the parts of these rows, because the overlay has the rows now."""
        ...

    def unpacked_bytes(self) -> int:
        """Estimate the memory of these rows. Any thread may ask."""
        ...


class Remembered(Protocol):
    """The decoded values that a store remembers by key (`read_cache.ReadCache`)."""

    def forget(self, key: bytes) -> None: ...

    def clear(self) -> None: ...


class Layer(dict[bytes, "bytes | None"]):
    """The entries of one layer, and two indexes of their keys, which are built when they are needed.

    One index is the sorted list of keys. The other one lists the keys by head: the head of a key is the key without its
    last bytes (the tail), whose number is the same for all keys of a store. A layer only grows, so the keys that an
    index doesn't have yet are the last ones of the dict.

    `fresh`: keys that the engine and older layers don't have. If such a key is deleted, the engine needn't hear of it.
    `merges`: the number of merges into the layer since its bytes were counted.
    """

    __slots__ = ("_by_head", "_bytes", "_counted", "_placed", "fresh", "merges", "sorted")

    merges: int

    def __init__(self, *entries: Batch) -> None:
        super().__init__(*entries)
        self.fresh: set[bytes] = set()
        self.sorted: list[bytes] = []
        self._by_head: dict[bytes, list[bytes]] = {}
        self.merges = self._counted = self._bytes = self._placed = 0

    def keys_between(self, start: bytes | None, end: bytes | None) -> list[bytes]:
        """Return the keys with start <= key < end, ascending. The first call builds the index."""
        keys, new = self.sorted, self._new_keys(len(self.sorted))
        if len(new) > _FEW:
            keys.extend(new)
            keys.sort()
        else:
            for key in new:
                insort(keys, key)
        low = 0 if start is None else bisect_left(keys, start)
        high = len(keys) if end is None else bisect_left(keys, end)
        return keys[low:high]

    def keys_of(self, head: bytes, tail_bytes: int) -> Sequence[bytes]:
        """Return the keys with this head, in no order. Each tail has `tail_bytes` bytes. The first call builds the
        index."""
        if len(self) > self._placed:
            new, by_head = self._new_keys(self._placed), self._by_head
            for key in new:
                by_head.setdefault(key[:-tail_bytes], []).append(key)
            self._placed += len(new)
        return self._by_head.get(head, ())

    def needed(self) -> Layer:
        """Return the entries without deletions of `fresh` keys."""
        fresh = self.fresh
        if not fresh:
            return self
        layer = Layer({key: value for key, value in self.items() if value is not None or key not in fresh})
        layer.fresh = fresh
        return layer

    def _new_keys(self, known: int) -> list[bytes]:
        """Return the keys that an index with `known` keys doesn't have yet. Collects them once more if a thaw has added
        keys in between."""
        while True:
            size = len(self)
            try:
                keys = list(islice(reversed(self), size - known))
            except RuntimeError:  # "dictionary changed size during iteration"
                continue
            if len(self) == size:
                return keys

    def memory_bytes(self) -> int:
        """Estimate the layer's memory, at no cost per put. Any thread may ask.

        All keys and values are summed up anew after as many merges as the layer had entries at the last count. So the
        cost per merge is constant in the long run, and a value that grows under a hot key is counted, too. Between two
        counts, every entry is assumed to have the average size of the last count.
        """
        entries = len(self)
        if entries and self.merges >= self._counted:
            indexes = self._placed * HEAD_BYTES + len(self.fresh) * FRESH_BYTES
            self._bytes = self._summed() + entries * ENTRY_OVERHEAD_BYTES + indexes
            self._counted, self.merges = entries, 0
        return self._bytes * entries // self._counted if self._counted else 0

    def _summed(self) -> int:
        """Sum up the bytes of keys and values. Begins anew if a merge adds keys in between."""
        while True:
            try:
                return sum(map(len, self)) + sum(map(len, filter(None, self.values())))
            except RuntimeError:  # "dictionary changed size during iteration"
                continue


class StoreLayers:
    """Scope, overlay and frozen layer of one store over the `Namespace` of its engine.

    `remembered`: decoded values that the typed store above keeps by key, to save reading and decoding. When a write is
    dropped, its remembered value is forgotten, too. `touched` lists the buffers that the current record has written to
    (`RecordScope`). `name`: the store's name, by default that of the namespace.
    """

    __slots__ = ("_frozen", "_namespace", "_new", "_overlay", "_pending", "_scope", "_touched", "_unpacked", "name",
                 "remembered")  # fmt: skip

    def __init__(
        self, namespace: Namespace, touched: list[Staging], remembered: Remembered, name: str | None = None
    ) -> None:
        self.name: str = name or namespace.name
        self.remembered: Remembered = remembered
        self._namespace = namespace
        self._touched = touched
        # A plain dict, the fastest to fill and to throw away, until a scan needs its order.
        self._scope: dict[bytes, bytes | None] = {}
        self._new: list[bytes] = []
        """Keys of the scope that are `fresh` once the scope is merged."""
        self._overlay = Layer()
        self._frozen: Layer | None = None
        self._pending = False
        """True while the frozen layer belongs to a commit. Otherwise it is a thawed overlay, or None."""
        self._unpacked: Unpacked | None = None

    # -- the current record

    def get(self, key: bytes) -> bytes | None:
        """Return the newest value of `key`, None if it is absent or deleted."""
        value = self._scope.get(key, ABSENT)
        if value is ABSENT:
            value = self._overlay.get(key, ABSENT)
            if value is ABSENT:
                frozen = self._frozen
                value = ABSENT if frozen is None else frozen.get(key, ABSENT)
                if value is ABSENT:
                    return self._namespace.get(key)
        return value  # type: ignore[no-any-return]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write into the scope; None deletes."""
        scope = self._scope
        if not scope:
            self._touched.append(self)
        scope[key] = value

    def put_new(self, key: bytes, value: bytes) -> None:
        """Write a key that has no value now, as the caller has found out. If the key is deleted before the next commit,
        the engine gets neither write."""
        scope, overlay = self._scope, self._overlay
        frozen = self._frozen
        # A layer that has the key deletes a value that an older layer or the engine has.
        if key not in overlay and key not in scope and (frozen is None or key not in frozen):
            self._new.append(key)
        if not scope:
            self._touched.append(self)
        scope[key] = value

    def join(self, other: Staging, unpacked: Unpacked | None = None) -> None:
        """Merge or drop `other` together with the current record, as this store's writes are. `unpacked`: each commit
        takes its rows into the overlay, until a roll-back. Before that, `get` doesn't see them."""
        self._touched.append(other)
        if unpacked is not None:
            self._unpacked = unpacked

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with start <= key < end (None: no bound) at the time of this call, uncommitted
        writes included."""
        self._take_unpacked()
        # The newest layer is read first. A concurrent freeze moves entries from the overlay to the frozen layer, and an
        # apply moves them on to the engine. So an entry that moves between two of these reads is met twice, and never
        # missed.
        scope = self._scope if isinstance(self._scope, Layer) else Layer(self._scope)
        self._scope = scope
        overlay, frozen = self._overlay, self._frozen
        staged: dict[bytes, bytes | None] = {}
        for layer in (None if frozen is overlay else frozen, overlay, scope):
            if layer:
                staged.update((key, layer[key]) for key in layer.keys_between(start, end))
        stored = self._namespace.scan(start, end, reverse=reverse)
        return merged(staged, stored, reverse) if staged else stored

    def scan_bounded(self, head: bytes, first: bytes, last: bytes) -> list[tuple[bytes, bytes]] | None:
        """Return the entries whose key is `head` and a tail with first <= tail <= last, at the time of this call, in
        key order.

        All tails have the same length. Returns None if the engine has many of these entries: then use `scan`."""
        # The newest layer is read first, as in `scan`.
        scope, overlay, frozen = self._scope, self._overlay, self._frozen
        tail_bytes, least, most = len(first), head + first, head + last
        if len(scope) > _FEW and not isinstance(scope, Layer):
            scope = self._scope = Layer(scope)
        staged: dict[bytes, bytes | None] = {}
        for layer in (overlay,) if frozen is None or frozen is overlay else (frozen, overlay):
            for key in layer.keys_of(head, tail_bytes):
                if least <= key <= most:
                    staged[key] = layer[key]
        size = len(most)
        for key in scope.keys_of(head, tail_bytes) if isinstance(scope, Layer) else scope:
            if least <= key <= most and len(key) == size:
                staged[key] = scope[key]
        stored = self._namespace.scan_bounded(least, most + b"\x00", _MOST)
        if len(stored) == _MOST:
            return None
        entries = [entry for entry in stored if len(entry[0]) == size]
        if not staged:
            return entries
        newest = {**dict(entries), **staged}
        return [(key, value) for key in sorted(newest) if (value := newest[key]) is not None]

    def approximate_entries(self) -> int:
        """Return the engine's estimate of the number of entries. Uncommitted writes aren't counted."""
        return self._namespace.approximate_entries()

    def merge(self) -> None:
        """Move the scope's entries to the overlay."""
        overlay = self._overlay
        overlay |= self._scope
        overlay.merges += 1
        self._scope = {}
        if self._new:
            overlay.fresh.update(self._new)
            self._new = []

    def drop_scope(self) -> None:
        """Drop the scope, and forget the remembered values of its keys."""
        for key in self._scope:
            self.remembered.forget(key)
        self._scope, self._new = {}, []

    # -- the commit

    def freeze(self) -> None:
        """Make the overlay the frozen layer of a commit. A new, empty overlay takes later writes."""
        if self._pending:
            raise MilestonesError(
                f"store {self.name} was frozen for a commit while an earlier one is still pending: this is a bug"
            )
        self._take_unpacked()
        self._pending = True
        self._frozen = self._overlay
        self._overlay = Layer()

    def _take_unpacked(self) -> None:
        """Take the rows of a store that keeps them unpacked into the overlay."""
        unpacked = self._unpacked
        if unpacked is not None:
            rows = unpacked.pack()
            self._overlay |= rows
            self._overlay.merges += len(rows)
            unpacked.packed()

    def frozen(self) -> Layer | None:
        """Return the writes of the pending commit, None if no commit is pending."""
        return self._frozen if self._pending else None

    def to_write(self) -> Layer | None:
        """Return the writes of the pending commit that the engine needs, None if no commit is pending. A key that came
        and went since the last commit is left out."""
        return self._frozen.needed() if self._pending and self._frozen is not None else None

    def uncommitted(self) -> Iterable[tuple[bytes, bytes | None]]:
        """Yield the writes that the engine doesn't have: first those of the overlay, then those of the frozen layer."""
        return chain(self._overlay.items(), () if self._frozen is None else self._frozen.items())

    def applied(self) -> None:
        """Drop the frozen layer, because the engine has all of its entries now."""
        self._pending, self._frozen = False, None

    def thaw(self) -> None:
        """Give the writes of a failed commit back to the next commit. Later writes of the same keys win.

        The later writes are put into the frozen layer, which then becomes the overlay. So the cost depends on the later
        writes only, not on the size of the failed commit. The frozen layer also stays in its place: a concurrent reader
        that has already asked the former overlay asks the frozen layer next, and must find the entries there."""
        frozen, overlay = self._frozen, self._overlay
        if self._pending and frozen is not None:
            frozen.fresh |= overlay.fresh
            frozen |= overlay
            frozen.merges += overlay.merges
            self._overlay = frozen
            self._pending = False

    def abort(self) -> None:
        """Drop all uncommitted writes. Only the engine's content remains."""
        self._scope, self._overlay, self._frozen, self._pending = {}, Layer(), None, False
        self._new, self._unpacked = [], None
        self.remembered.clear()

    def rebase(self, namespace: Namespace) -> None:
        """Replace the engine's namespace by `namespace`, which is empty. Drops all writes and remembered values."""
        self._namespace = namespace
        self.abort()

    def uncommitted_bytes(self) -> int:
        """Estimate the memory of writes that the engine doesn't have: the overlay, a frozen layer of a commit, and the
        rows that the store keeps unpacked."""
        frozen, unpacked = self._frozen if self._pending else None, self._unpacked
        size = self._overlay.memory_bytes() + (0 if unpacked is None else unpacked.unpacked_bytes())
        return size + (0 if frozen is None else frozen.memory_bytes())


def merged(
    staged: dict[bytes, bytes | None], stored: Iterator[tuple[bytes, bytes]], reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Merge the engine's entries with staged writes of the same range, in key order. A staged write hides the engine's
    entry of the same key, and a staged None leaves the key out."""
    waiting = sorted(staged, reverse=not reverse)  # the next one is the last
    for key, value in stored:
        while waiting and (waiting[-1] > key if reverse else waiting[-1] < key):
            yield from _existing(staged, waiting.pop())
        if waiting and waiting[-1] == key:
            yield from _existing(staged, waiting.pop())
        else:
            yield key, value
    while waiting:
        yield from _existing(staged, waiting.pop())


def _existing(staged: dict[bytes, bytes | None], key: bytes) -> Iterator[tuple[bytes, bytes]]:
    value = staged[key]
    if value is not None:
        yield key, value
