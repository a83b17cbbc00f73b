"""The layers between a store's users and its engine; bytes only.

            put                 end of record            commit               Kafka confirmed
    user ---------> scope ---------merge------> overlay --freeze--> frozen --------applied-------> engine
                      | the record failed          ^                  |
                      v                            +------thaw--------+  the commit failed, keep it for the next
                    dropped

*Guarantees*: a read sees the newest layer that has the key (scope, overlay, frozen, engine); None in a layer is a
deletion. A scan shows the entries of the moment of its call, in byte order. A reader finds every entry in at least one
place at any time: `freeze` sets the frozen layer before it empties the overlay, and `applied` is called after the
engine has all of it. A thawed layer is the overlay, and stays the frozen layer, too, until the next commit.
*Assumes*: one thread reads, puts and merges. `merge`, `freeze`, `thaw` exclude each other (the task's lock).
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
"""A layer's answer for a key that it doesn't have; None means that the key is deleted."""

ENTRY_OVERHEAD_BYTES = 170
"""Memory of an uncommitted entry besides its key and value: two bytes objects' headers and a dict's slot."""

HEAD_BYTES = 250
"""Memory of an entry's place among those of its head: slices of its key, a list, slots."""

_FEW = 16
_MOST = 256
"""The most entries of one head that are read at once."""


class Staging(Protocol):
    """A buffer of the record in work, which is merged or dropped with the record."""

    def merge(self) -> None:
        """Move the record's writes to the boundary, as the record is done."""
        ...

    def drop_scope(self) -> None:
        """Drop the record's writes, as the record failed."""
        ...


class Remembered(Protocol):
    """The remembered values of a store (`read_cache.ReadCache`)."""

    def forget(self, key: bytes) -> None: ...

    def clear(self) -> None: ...


class Layer(dict[bytes, "bytes | None"]):
    """Entries of one layer. A layer only grows, so the keys missing in one of its two indexes are its last ones: the
    sorted keys, and the keys by their heads, all but a tail of bytes that are as many in each key of a store.

    `merges`: the number of merges into the layer.
    """

    __slots__ = ("_by_head", "_bytes", "_counted", "_placed", "merges", "sorted")

    merges: int

    def __init__(self, *entries: Batch) -> None:
        super().__init__(*entries)
        self.sorted: list[bytes] = []
        self._by_head: dict[bytes, list[bytes]] = {}
        self.merges = self._counted = self._bytes = self._placed = 0

    def keys_between(self, start: bytes | None, end: bytes | None) -> list[bytes]:
        """The keys with start <= key < end, ascending. The first call builds the index."""
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
        """The keys of this head with a tail of `tail_bytes`, in no order. The first call builds the index."""
        if len(self) > self._placed:
            new, by_head = self._new_keys(self._placed), self._by_head
            for key in new:
                by_head.setdefault(key[:-tail_bytes], []).append(key)
            self._placed += len(new)
        return self._by_head.get(head, ())

    def _new_keys(self, known: int) -> list[bytes]:
        """The keys that an index of so many doesn't have yet. Collected again when a thaw added keys meanwhile."""
        while True:
            size = len(self)
            try:
                keys = list(islice(reversed(self), size - known))
            except RuntimeError:  # "dictionary changed size during iteration"
                continue
            if len(self) == size:
                return keys

    def memory_bytes(self) -> int:
        """The layer's memory, an estimate that costs nothing per put. Any thread may ask.

        Keys and values are summed up again after as many merges as there were entries at the last count, so that
        counting is constant per merge in the long run, and growing values of hot keys count, too. In between the
        average of the last count is assumed.
        """
        entries = len(self)
        if entries and self.merges >= self._counted:
            self._bytes = self._summed() + entries * ENTRY_OVERHEAD_BYTES + self._placed * HEAD_BYTES
            self._counted, self.merges = entries, 0
        return self._bytes * entries // self._counted if self._counted else 0

    def _summed(self) -> int:
        """The bytes of keys and values. Summed up again when a merge added keys meanwhile."""
        while True:
            try:
                return sum(map(len, self)) + sum(map(len, filter(None, self.values())))
            except RuntimeError:  # "dictionary changed size during iteration"
                continue


class StoreLayers:
    """Scope, overlay and frozen layer of one store over the `Namespace` of its engine.

    `remembered`: the values that the typed store above keeps by key instead of reading and decoding them again; they
    are forgotten here together with their writes. `touched` lists the buffers that the record in work has written to
    (`RecordScope`). `name`: the store's, by default that of the namespace.
    """

    __slots__ = ("_frozen", "_namespace", "_overlay", "_pending", "_scope", "_touched", "name", "remembered")

    def __init__(
        self, namespace: Namespace, touched: list[Staging], remembered: Remembered, name: str | None = None
    ) -> None:
        self.name: str = name or namespace.name
        self.remembered: Remembered = remembered
        self._namespace = namespace
        self._touched = touched
        # A plain dict, the fastest to fill and to throw away, until a scan needs its order.
        self._scope: dict[bytes, bytes | None] = {}
        self._overlay = Layer()
        self._frozen: Layer | None = None
        self._pending = False
        """Whether the frozen layer is a commit's. Otherwise it is a thawed overlay, or None."""

    # -- the record in work

    def get(self, key: bytes) -> bytes | None:
        """The newest value of `key`, None when absent or deleted."""
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

    def join(self, other: Staging) -> None:
        """Have `other` merged or dropped with the record in work, as this store's writes are."""
        self._touched.append(other)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Entries with start <= key < end (None: unbounded) as of this call, own uncommitted writes included."""
        # Newest first, as a concurrent freeze moves entries from the overlay to the frozen layer, and an apply on to
        # the engine: an entry that moves between two of these reads is met twice, never missed.
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
        """The entries with a key of `head` and a tail, first <= tail <= last, as of this call, in the order of the
        tails, which are equally long; None when there are many of them in the engine: scan these."""
        # Newest first, as in `scan`.
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
        """The engine's estimate; uncommitted writes don't count."""
        return self._namespace.approximate_entries()

    def merge(self) -> None:
        """Move the scope's entries to the overlay."""
        overlay = self._overlay
        overlay |= self._scope
        overlay.merges += 1
        self._scope = {}

    def drop_scope(self) -> None:
        """Drop the scope, and the values remembered of it."""
        for key in self._scope:
            self.remembered.forget(key)
        self._scope = {}

    # -- the commit

    def freeze(self) -> None:
        """Make the overlay the frozen layer of a commit; a new overlay takes later writes."""
        if self._pending:
            raise MilestonesError(
                f"store {self.name} was frozen for a commit while an earlier one is still pending: this is a bug"
            )
        self._pending = True
        self._frozen = self._overlay
        self._overlay = Layer()

    def frozen(self) -> Batch | None:
        """The writes of the pending commit; None when none is pending."""
        return self._frozen if self._pending else None

    def uncommitted(self) -> Iterable[tuple[bytes, bytes | None]]:
        """The writes that the engine doesn't have, the last ones first."""
        return chain(self._overlay.items(), () if self._frozen is None else self._frozen.items())

    def applied(self) -> None:
        """Drop the frozen layer, all of which the engine has now."""
        self._pending, self._frozen = False, None

    def thaw(self) -> None:
        """Put the writes of a failed commit back under later ones.

        The cost is that of the later writes, however much has failed before. A reader that has looked into the former
        overlay already looks into the frozen layer next, and has to find the former entries there."""
        frozen, overlay = self._frozen, self._overlay
        if self._pending and frozen is not None:
            frozen |= overlay
            frozen.merges += overlay.merges
            self._overlay = frozen
            self._pending = False

    def abort(self) -> None:
        """Drop all uncommitted writes: only the engine's content remains."""
        self._scope, self._overlay, self._frozen, self._pending = {}, Layer(), None, False
        self.remembered.clear()

    def rebase(self, namespace: Namespace) -> None:
        """Read from `namespace`, which is empty, from now on; remembered values are forgotten."""
        self._namespace = namespace
        self.abort()

    def uncommitted_bytes(self) -> int:
        """Memory of writes that aren't in the engine yet, about: the overlay, and the frozen layer until it is
        applied."""
        frozen = self._frozen if self._pending else None
        return self._overlay.memory_bytes() + (0 if frozen is None else frozen.memory_bytes())


def merged(
    staged: dict[bytes, bytes | None], stored: Iterator[tuple[bytes, bytes]], reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of the engine with the staged ones over them, in order; deleted ones hidden."""
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
