"""`WriteBehindStorage`: confirmed commits wait in memory, and are written to the engine a few at a time.

    task --apply--> waiting, the last value of each key --write--> the storage below, its engine
    reader --> waiting --a key that isn't there--> engine

| what waits is written | because |
|---|---|
| `interval_ms` after the last write: by a commit, or without one (`write_due_ms`) | a crash costs few commits |
| by a commit with which what waits of all tasks exceeds `max_bytes` | memory; what others have waiting stays |
| before a restoration writes, before rows expire, at the close | what comes next has to come behind it |
| as a task gives its stores to a standby | nothing of it is due any more, and its memory is others' |

*Guarantees*: a reader finds what was committed, whether it waits or is written. The engine has all of a commit and its
offsets, or nothing of it: what was written last is one of the task's commits. A kill costs a replay of the changelogs
behind it. Commits further apart than `interval_ms` are written at once.
*Assumes*: a replay restores the commits that wait. So a task with a store on disk without changelog has no such
storage. Stores are read by key. A store that is scanned for each record (windows, joins) would make its index anew at
each commit; a task with such a store is written at once, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from milestones.common.errors import StateError
from milestones.common.state.layers import ABSENT, ENTRY_OVERHEAD_BYTES, Layer, merged

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.state.engine import Batch, BoundedScan, Namespace, Span
    from milestones.common.state.spec import StoreKind, StoreSpec
    from milestones.common.state.storage import CommitMade, TaskStorage

T = TypeVar("T")

log: Final = logging.getLogger(__name__)

READ_BY_KEY: Final[frozenset[StoreKind]] = frozenset({
    "key-value", "timestamped-key-value", "timestamped-key-value-with-headers",
})  # fmt: skip


class WaitingCommits:
    """The commits of an instance that wait: at most `max_bytes` in all, for about `interval_ms`.

    *Concurrency*: the lock guards the bytes by storage, their sum, and the number of storages that it is the sum of."""

    def __init__(self, max_bytes: int, interval_ms: int) -> None:
        """`interval_ms` 0, or `max_bytes` 0: none waits."""
        self.interval_ms, self._max_bytes = interval_ms, max_bytes
        self._lock = threading.Lock()
        self._held: WeakKeyDictionary[WriteBehindStorage, int] = WeakKeyDictionary()
        self._all, self._storages = 0, 0

    def of(self, storage: TaskStorage, specs: Collection[StoreSpec], clock: Clock) -> TaskStorage:
        """`storage`, or one in front of it whose commits wait, where a replay gives them again."""
        persistent = [spec for spec in specs if spec.persistent]
        if not (persistent and self.interval_ms and self._max_bytes and all(map(_can_wait, persistent))):
            return storage
        return WriteBehindStorage(storage, [spec.name for spec in persistent], clock, self)

    def hold(self, storage: WriteBehindStorage, held: int) -> bool:
        """Note the bytes of a storage that wait. Whether all that waits is within the bound."""
        with self._lock:
            self._all += held - self._held.get(storage, 0)
            self._storages += storage not in self._held
            self._held[storage] = held
            return self._sum() <= self._max_bytes

    def let_go(self, storage: WriteBehindStorage) -> None:
        """Nothing of the storage waits any more."""
        with self._lock:
            self._storages -= storage in self._held
            self._all -= self._held.pop(storage, 0)

    def memory_bytes(self) -> int:
        """Memory of all that waits, about. From any thread."""
        with self._lock:
            return self._sum()

    def _sum(self) -> int:
        """Summed up anew when a storage is gone that was never closed."""
        if len(self._held) != self._storages:
            self._all, self._storages = sum(self._held.values()), len(self._held)
        return self._all


def _can_wait(spec: StoreSpec) -> bool:
    return spec.kind in READ_BY_KEY and (spec.logged or spec.source_topic is not None)


class WriteBehindNamespace:
    """See `Namespace`. `waiting`: the entries that the namespace below doesn't have yet, `bytes`: their memory.

    *Concurrency*: what was written stays here until the namespace below has it."""

    name: str
    get: Callable[[bytes], bytes | None]

    def __init__(self, below: Namespace) -> None:
        self.name, self._below = below.name, below
        self.bytes: int = 0
        self._cell = cell = [Layer()]
        self._scan_bounded = below.reader()
        read = below.get

        def get(key: bytes) -> bytes | None:
            value = cell[0].get(key, ABSENT)
            return read(key) if value is ABSENT else value

        self.get = get

    @property
    def waiting(self) -> Layer:
        return self._cell[0]

    def wait(self, batch: Batch) -> None:
        """Have these entries wait, too."""
        waiting = self._cell[0]
        known = waiting.keys() & batch.keys()
        former = _bytes(known, map(waiting.get, known))
        self.bytes += _bytes(batch, batch.values()) - former + (len(batch) - len(known)) * ENTRY_OVERHEAD_BYTES
        waiting |= batch

    def written(self) -> None:
        """Let go of what waited, as the namespace below has it."""
        self._cell[0], self.bytes = Layer(), 0

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        waiting = self._between(start, end)  # first, as what waits may be written meanwhile
        stored = self._below.scan(start, end, reverse=reverse)
        return merged(waiting, stored, reverse) if waiting else stored

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return self._first(self._scan_bounded, start, end, limit)

    def reader(self, beyond: bytes | None = None) -> BoundedScan:
        few = self._below.reader(beyond)
        return lambda start, end, limit: self._first(few, start, end, limit)

    def _first(self, few: BoundedScan, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        waiting = self._between(start, end)
        stored = few(start, end, limit + len(waiting))  # as many of them may be deleted
        return list(islice(merged(waiting, iter(stored), False), limit)) if waiting else stored

    def _between(self, start: bytes | None, end: bytes | None) -> dict[bytes, bytes | None]:
        waiting = self._cell[0]
        return {key: waiting[key] for key in waiting.keys_between(start, end)} if waiting else {}

    def offset(self) -> int | None:
        """As of the last write."""
        return self._below.offset()

    def approximate_entries(self) -> int:
        """With what waits: as in an engine, each put of a key counts, and a deletion takes one away."""
        waiting = list(self.waiting.values())
        return max(0, self._below.approximate_entries() + len(waiting) - 2 * waiting.count(None))


class WriteBehindStorage:
    """See `TaskStorage`. *Owns*: what waits of the stores on disk, and the offsets and the commit that go with it.

    *Concurrency*: as `TaskStorage`."""

    def __init__(self, below: TaskStorage, stores: Collection[str], clock: Clock, commits: WaitingCommits) -> None:
        """`stores`: those on disk."""
        self._below, self._clock, self._commits = below, clock, commits
        self._namespaces = {store: WriteBehindNamespace(below.namespace(store)) for store in stores}
        self._offsets: dict[str, int] = {}
        self._noted: CommitMade | None = None
        self._waiting: CommitMade | None = None
        """The last commit that isn't written."""
        self._due_ms = clock.monotonic_ms()

    def namespace(self, store: str) -> Namespace:
        return self._namespaces.get(store) or self._below.namespace(store)

    def offsets(self) -> dict[str, int | None]:
        waiting = self._offsets  # before what is written: else a write in between could be missed in both
        return {**self._below.offsets(), **waiting}

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        """A commit that was noted waits, or is written with those that wait. What a restoration has read is written."""
        commit, self._noted = self._noted, None
        if commit is None:
            self.write()
            self._below.apply(batches, offsets)
            return
        in_memory = {*batches, *offsets}.difference(self._namespaces)
        if in_memory:
            self._below.apply(_of(batches, in_memory), _of(offsets, in_memory))
        for store, namespace in self._namespaces.items():
            if batch := batches.get(store):
                namespace.wait(batch)
        self._offsets.update(_of(offsets, self._namespaces))
        self._waiting = commit
        if not (self._clock.monotonic_ms() < self._due_ms and self._commits.hold(self, self._waiting_bytes())):
            self.write()

    def write_due_ms(self) -> int | None:
        return None if self._waiting is None else self._due_ms

    def write(self) -> None:
        """Write what waits. `StateBusyError`: it still waits; `StateError`."""
        if self._waiting is None:
            return
        self._below.note(self._waiting)
        batches = {store: waiting for store, namespace in self._namespaces.items() if (waiting := namespace.waiting)}
        self._below.apply(batches, self._offsets)
        self._let_go()
        self._due_ms = self._clock.monotonic_ms() + self._commits.interval_ms

    def _let_go(self) -> None:
        for namespace in self._namespaces.values():
            namespace.written()
        self._offsets, self._waiting = {}, None
        self._commits.let_go(self)

    def note(self, commit: CommitMade) -> None:
        self._noted = commit

    def commit_number(self) -> int | None:
        return self._below.commit_number() if self._waiting is None else self._waiting.number

    def expire(self, store: str, spans: Collection[Span]) -> None:
        if store in self._namespaces:
            self.write()
        self._below.expire(store, spans)

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        if store not in self._namespaces:
            return self._below.clear(store, reason)
        self._namespaces[store].written()  # first: a clear that fails halfway may leave it empty, to be restored
        self._offsets.pop(store, None)
        cleared = self._namespaces[store] = WriteBehindNamespace(self._below.clear(store, reason))
        return cleared

    def ingest(self, store: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        return self._below.ingest(store, files, prefix)

    def changelog_ids(self) -> Mapping[str, str]:
        return self._below.changelog_ids()

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        self._below.keep_changelog_ids(ids)

    def _waiting_bytes(self) -> int:
        return sum(namespace.bytes for namespace in self._namespaces.values())

    def memory_bytes(self) -> int:
        return self._below.memory_bytes()

    def close(self) -> None:
        """Write what waits, if that is possible: else the next one that opens the stores replays it."""
        try:
            self.write()
        except StateError as error:
            log.warning("what was committed last isn't written, and will be restored from the changelogs: %s", error)
        finally:
            self._let_go()
            self._below.close()


def _bytes(keys: Collection[bytes], values: Iterable[bytes | None]) -> int:
    return sum(map(len, keys)) + sum(map(len, filter(None, values)))


def _of(values: Mapping[str, T], stores: Collection[str]) -> dict[str, T]:
    return {store: value for store, value in values.items() if store in stores}
