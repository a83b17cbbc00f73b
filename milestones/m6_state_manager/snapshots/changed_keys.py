"""`ChangedKeys` collects the keys that were changed since the last snapshot, in limited memory. A delta has these keys.

*Guarantees*: the keys of all ranges together take at most the bound. Beyond the bound the keys of one store are
forgotten, and its next snapshot is a base. A key that was written is among the changed keys of the next snapshot that
contains the write.
*Assumes*: a range has one writer at a time, which calls `begin` and `end`.
*Concurrency*: one lock guards everything, also the fields of a `RangeChanges`. No other module may rely on two of these
fields being of one moment. The lock is held while a set is updated, and never in I/O.
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
"""The most bytes of changed keys for all ranges of an instance: half a million keys of 20 bytes."""

KEY_BYTES: Final = 100
"""The memory that a key takes beyond its own bytes: for the object, and its place in a set."""


@dataclass
class Changes:
    """What has changed in one store partition since the snapshot `on`. `on` is None if no such snapshot is known.
    `keys` is None if the changed keys aren't known. `gone`: spans that were deleted whole."""

    on: SnapshotManifest | None = None
    keys: set[bytes] | None = None
    gone: tuple[Span, ...] = ()
    bytes: int = 0


@dataclass
class RangeChanges:
    """The changes of one task's range. `writes`: the number of applies that have begun. `ended`: the value of `writes`
    when an apply was last written whole. `leads`: True if that apply was a commit of the task's own, False if it came
    from the changelog."""

    stores: dict[str, Changes] = field(default_factory=dict)
    writes: int = 0
    ended: int = 0
    leads: bool = False


class ChangedKeys:
    """*Owns*: the changes, by range."""

    def __init__(self, bound: int = BOUND) -> None:
        self.bytes: int = 0
        self._bound, self._lock = bound, threading.Lock()
        self._ranges: dict[tuple[int, int], RangeChanges] = {}

    def range(self, subtopology: int, partition: int) -> RangeChanges:
        """Return the changes of a task's range."""
        with self._lock:
            return self._ranges.setdefault((subtopology, partition), RangeChanges())

    def begin(self, of: RangeChanges) -> None:
        """Note that an apply begins."""
        with self._lock:
            of.writes += 1

    def end(self, of: RangeChanges, *, leads: bool) -> None:
        """Note that the last apply is written whole. Then nothing of earlier applies is left unwritten, either."""
        with self._lock:
            of.ended, of.leads = of.writes, leads

    def follows(self, of: RangeChanges) -> None:
        """Note that the range's content comes from the changelog, until the task's own next commit."""
        with self._lock:
            of.leads = False

    def note(self, of: RangeChanges, store: str, keys: Collection[bytes]) -> None:
        """Note that these keys are about to be written or deleted."""
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
        """Note that all keys of these spans are about to be deleted."""
        with self._lock:
            changes = of.stores.get(store)
            if changes is not None:
                changes.gone = merged((*changes.gone, *spans))

    def emptied(self, subtopology: int, partition: int, stores: Iterable[str]) -> None:
        """Forget the changes of stores that were emptied, or have another content: their next snapshots are bases."""
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
        """Return True if no apply is under way, and the last one was written whole."""
        with self._lock:
            return of.writes == of.ended

    def take(self, of: RangeChanges, stores: Collection[str]) -> tuple[int, dict[str, Changes]] | None:
        """Take the changes of these stores for a snapshot, and begin new sets for the next one. Returns the number of
        applies up to now, and the changes. If an apply hasn't ended whole, takes nothing and returns None."""
        with self._lock:
            if of.writes != of.ended:
                return None
            taken = {store: of.stores.get(store, Changes()) for store in stores}
            of.stores.update((store, Changes(None, set())) for store in stores)
            return of.writes, taken

    def published(self, of: RangeChanges, store: str, taken: Changes, manifest: SnapshotManifest) -> None:
        """Note that the snapshot was published for which `taken` was taken."""
        with self._lock:
            self.bytes -= taken.bytes
            changes = of.stores[store]
            if changes.keys is not None:
                changes.on = manifest

    def put_back(self, of: RangeChanges, store: str, taken: Changes) -> None:
        """Put `taken` back, as its snapshot wasn't made."""
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
