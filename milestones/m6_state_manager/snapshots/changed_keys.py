"""The keys that were changed since the last snapshot, in memory, within a bound: what the next delta is made of.

*Guarantees*: the keys of all ranges together take at most the bound. Beyond it the keys of one store are forgotten, and
its next snapshot is a base. A key that was written is among those of the next snapshot that has the write.
*Assumes*: a range has one writer at a time, which says when it begins and ends.
*Concurrency*: one lock guards all, fields of a `RangeChanges`, too: no other module reads two of them as one moment's.
It is held for the time of a step's set update, never in I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from milestones.common.state.snapshots.snapshot import merged

if TYPE_CHECKING:
    from milestones.common.state.engine import Span
    from milestones.common.state.snapshots.snapshot import SnapshotManifest

BOUND: Final = 64 * 1024 * 1024
"""Bytes for all ranges of an instance: half a million keys of 20 bytes."""

KEY_BYTES: Final = 100
"""The memory of a key in addition to its own bytes: the object, and its place in a set."""


@dataclass
class Changes:
    """What has changed of one store partition since the snapshot `on`, None while none is known. `keys` None: not
    known; `gone`: spans that were deleted whole."""

    on: SnapshotManifest | None = None
    keys: set[bytes] | None = None
    gone: tuple[Span, ...] = ()
    bytes: int = 0


@dataclass
class RangeChanges:
    """One task's range. `writes`: how many applies have begun; `ended`: the number of the last one that has ended
    whole; `leads`: that one was a commit of the task's own, not of its changelog."""

    stores: dict[str, Changes] = field(default_factory=dict)
    writes: int = 0
    ended: int = 0
    leads: bool = False


class ChangedKeys:
    """*Owns*: what has changed, by range."""

    def __init__(self, bound: int = BOUND) -> None:
        self.bytes: int = 0
        self._bound, self._lock = bound, threading.Lock()
        self._ranges: dict[tuple[int, int], RangeChanges] = {}

    def range(self, subtopology: int, partition: int) -> RangeChanges:
        """What has changed of a task's range."""
        with self._lock:
            return self._ranges.setdefault((subtopology, partition), RangeChanges())

    def begin(self, of: RangeChanges) -> None:
        """An apply begins."""
        with self._lock:
            of.writes += 1

    def end(self, of: RangeChanges, *, leads: bool) -> None:
        """All of the last apply is written, and of those before it that broke off."""
        with self._lock:
            of.ended, of.leads = of.writes, leads

    def follows(self, of: RangeChanges) -> None:
        """What the task has is its changelog's, until its own next commit."""
        with self._lock:
            of.leads = False

    def note(self, of: RangeChanges, store: str, keys: Collection[bytes]) -> None:
        """These keys are written, or deleted."""
        if not keys or store not in of.stores:
            return
        each = KEY_BYTES + sum(map(len, keys)) // len(keys)
        with self._lock:
            changes = of.stores[store]
            known = changes.keys
            if known is None:
                return
            before = len(known)
            known.update(keys)
            added = (len(known) - before) * each
            changes.bytes += added
            self.bytes += added
            if self.bytes > self._bound:
                self._forget(changes)

    def expired(self, of: RangeChanges, store: str, spans: Iterable[Span]) -> None:
        """All keys of these spans are deleted."""
        with self._lock:
            changes = of.stores.get(store)
            if changes is not None:
                changes.gone = merged((*changes.gone, *spans))

    def emptied(self, subtopology: int, partition: int, stores: Iterable[str]) -> None:
        """The stores are empty, or have another content: what was known of them is no more."""
        with self._lock:
            found = self._ranges.get((subtopology, partition))
            for changes in (found.stores.get(store) for store in stores) if found is not None else ():
                if changes is not None:
                    self._forget(changes)

    def _forget(self, changes: Changes) -> None:
        self.bytes -= changes.bytes
        changes.on, changes.keys, changes.gone, changes.bytes = None, None, (), 0

    # -- snapshots

    def whole(self, of: RangeChanges) -> bool:
        """Whether no apply is under way, nor has broken off."""
        with self._lock:
            return of.writes == of.ended

    def take(self, of: RangeChanges, stores: Collection[str]) -> tuple[int, dict[str, Changes]] | None:
        """How many applies there were up to now, and what they have changed of the stores; what changes from now on is
        since the snapshot that is made now. None, and nothing is taken, when not all of them have ended whole."""
        with self._lock:
            if of.writes != of.ended:
                return None
            taken = {store: of.stores.get(store, Changes()) for store in stores}
            of.stores.update((store, Changes(None, set())) for store in stores)
            return of.writes, taken

    def published(self, of: RangeChanges, store: str, taken: Changes, manifest: SnapshotManifest) -> None:
        """The snapshot is there that `taken` was taken for."""
        with self._lock:
            self.bytes -= taken.bytes
            changes = of.stores[store]
            if changes.keys is not None:
                changes.on = manifest

    def put_back(self, of: RangeChanges, store: str, taken: Changes) -> None:
        """There was no snapshot."""
        with self._lock:
            changes = of.stores[store]
            if changes.keys is None or taken.keys is None or taken.on is None:
                self._forget(changes)
                self.bytes -= taken.bytes
                return
            changes.on = taken.on
            few, many = sorted((changes.keys, taken.keys), key=len)
            many |= few
            changes.keys = many
            changes.gone = merged((*taken.gone, *changes.gone))
            changes.bytes += taken.bytes
