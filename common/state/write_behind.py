"""`WriteBehindStorage`: confirmed commits wait in memory, and are written to the engine a few at a time.

    task --apply--> waiting, the last value of each key --write--> the storage below, its engine
    reader --> waiting --a key that isn't there--> engine

| a task's waiting commits are written | because |
|---|---|
| `interval_ms` after the last write, by the next commit or by `write` (`write_due_ms`) | a crash costs a short replay |
| when a commit of the task brings the waiting bytes of all tasks above `max_bytes` | it frees memory |
| before a restoration writes, before rows expire, and at the close | later writes must not overtake earlier ones |
| when the task gives its stores to a standby | a standby commits nothing, so nothing would write them later |

*Guarantees*: a reader finds all committed entries, the waiting ones and the written ones. The engine's content is
always that of one of the task's commits, with this commit's offsets. After a kill, only the part of the changelogs
behind these offsets is replayed. A commit that comes later than `interval_ms` after the last write doesn't wait. If all
waiting commits need too much memory, the task that commits writes its own; those of other tasks go on waiting.
*Assumes*: a replay of the changelogs restores the commits that wait.

*Why this way*: a write of several commits writes each key once, so the disk has less work than with a write per commit.
- A task with a store on disk that has no changelog writes each commit immediately, because no replay could restore it.
- A task with a store that is scanned for each record, and has no views of its keys, does the same: after each commit,
  the first scan would have to sort the waiting keys anew.
- A row that comes and goes between two writes is never written, such as the former bounds of a session. A write that
  broke off counts here, as it may have written the row.
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
from milestones.common.state.layers import ABSENT, ENTRY_OVERHEAD_BYTES, FRESH_BYTES, Layer, merged

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.state.engine import Batch, BoundedScan, EngineMemory, Namespace, Span
    from milestones.common.state.spec import StoreKind, StoreSpec
    from milestones.common.state.storage import CommitMade, TaskStorage

T = TypeVar("T")

log: Final = logging.getLogger(__name__)

SELDOM_SCANNED: Final[frozenset[StoreKind]] = frozenset({
    "key-value", "timestamped-key-value", "timestamped-key-value-with-headers",
    "window", "timestamped-window", "session", "suppress",
})  # fmt: skip
"""The kinds whose rows are read by key, or by views of keys. A suppress buffer is scanned only when it is opened."""


class WaitingCommits:
    """The bound of all waiting commits of an instance: `max_bytes` in all, each for about `interval_ms`.

    *Concurrency*: the lock guards the bytes of each storage, the sum of these bytes, and the number of storages in the
    sum."""

    def __init__(self, max_bytes: int, interval_ms: int) -> None:
        """If `interval_ms` or `max_bytes` is 0, no commit waits."""
        self.interval_ms, self._max_bytes = interval_ms, max_bytes
        self._lock = threading.Lock()
        self._held: WeakKeyDictionary[WriteBehindStorage, int] = WeakKeyDictionary()
        self._all, self._storages = 0, 0

    def of(self, storage: TaskStorage, specs: Collection[StoreSpec], clock: Clock) -> TaskStorage:
        """Return a `WriteBehindStorage` in front of `storage`, or `storage` itself if the commits of this task can't
        wait: then they are written immediately."""
        persistent = [spec for spec in specs if spec.persistent]
        if not (persistent and self.interval_ms and self._max_bytes and all(map(_can_wait, persistent))):
            return storage
        return WriteBehindStorage(storage, [spec.name for spec in persistent], clock, self)

    def hold(self, storage: WriteBehindStorage, held: int) -> bool:
        """Note how many bytes of a storage wait. Returns True if the bytes of all storages are within the bound."""
        with self._lock:
            self._all += held - self._held.get(storage, 0)
            self._storages += storage not in self._held
            self._held[storage] = held
            return self._sum() <= self._max_bytes

    def let_go(self, storage: WriteBehindStorage) -> None:
        """Note that no commit of the storage waits any more."""
        with self._lock:
            self._storages -= storage in self._held
            self._all -= self._held.pop(storage, 0)

    def memory_bytes(self) -> int:
        """Estimate the memory of all waiting commits. Any thread may ask."""
        with self._lock:
            return self._sum()

    def _sum(self) -> int:
        """Return the bytes of all storages. Sums them up anew if a storage was garbage-collected without a close."""
        if len(self._held) != self._storages:
            self._all, self._storages = sum(self._held.values()), len(self._held)
        return self._all


def _can_wait(spec: StoreSpec) -> bool:
    return spec.kind in SELDOM_SCANNED and (spec.logged or spec.source_topic is not None)


class WriteBehindNamespace:
    """A `Namespace` in front of another one. `waiting`: the committed entries that the namespace below doesn't have
    yet. `bytes`: their memory.

    *Concurrency*: an entry stays in `waiting` until the namespace below has it, so that a reader never misses it."""

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
        """Add these entries to the waiting ones."""
        waiting = self._cell[0]
        known = waiting.keys() & batch.keys()
        former = _bytes(known, map(waiting.get, known))
        self.bytes += _bytes(batch, batch.values()) - former + (len(batch) - len(known)) * ENTRY_OVERHEAD_BYTES
        if isinstance(batch, Layer) and batch.fresh:
            fresh = (batch.fresh & batch.keys()) - known  # a waiting deletion is one of a row that is below
            waiting.fresh |= fresh
            self.bytes += len(fresh) * FRESH_BYTES
        waiting |= batch

    def written(self) -> None:
        """Drop the waiting entries, because the namespace below has them now."""
        self._cell[0], self.bytes = Layer(), 0

    def written_in_part(self) -> None:
        """Note that the namespace below may have some of the waiting entries. So each row that goes from now on must be
        deleted there, too."""
        waiting = self._cell[0]
        self.bytes -= len(waiting.fresh) * FRESH_BYTES
        waiting.fresh = set()

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        waiting = self._between(start, end)  # before the scan below: a write in between moves entries down
        stored = self._below.scan(start, end, reverse=reverse)
        return merged(waiting, stored, reverse) if waiting else stored

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return self._first(self._scan_bounded, start, end, limit)

    def reader(self, beyond: bytes | None = None) -> BoundedScan:
        few = self._below.reader(beyond)
        return lambda start, end, limit: self._first(few, start, end, limit)

    def _first(self, few: BoundedScan, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        waiting = self._between(start, end)
        stored = few(start, end, limit + len(waiting))  # each waiting entry may delete one of the stored ones
        return list(islice(merged(waiting, iter(stored), False), limit)) if waiting else stored

    def _between(self, start: bytes | None, end: bytes | None) -> dict[bytes, bytes | None]:
        waiting = self._cell[0]
        return {key: waiting[key] for key in waiting.keys_between(start, end)} if waiting else {}

    def offset(self) -> int | None:
        """Return the offset of the last write. Waiting commits aren't counted."""
        return self._below.offset()

    def approximate_entries(self) -> int:
        """Estimate the number of entries, with the waiting ones. As in an engine, each put of a key counts as an entry,
        and each deletion takes one away."""
        waiting = list(self.waiting.needed().values())
        return max(0, self._below.approximate_entries() + len(waiting) - 2 * waiting.count(None))


class WriteBehindStorage:
    """A `TaskStorage` in front of another one. *Owns*: the waiting entries of the stores on disk, their offsets, and
    the last commit that they belong to.

    *Concurrency*: as `TaskStorage`."""

    def __init__(self, below: TaskStorage, stores: Collection[str], clock: Clock, commits: WaitingCommits) -> None:
        """`stores`: the names of the stores on disk. Stores in memory don't wait."""
        self._below, self._clock, self._commits = below, clock, commits
        self._namespaces = {store: WriteBehindNamespace(below.namespace(store)) for store in stores}
        self._offsets: dict[str, int] = {}
        self._noted: CommitMade | None = None
        self._waiting: CommitMade | None = None
        """The last of the commits that wait."""
        self._due_ms = clock.monotonic_ms()

    def namespace(self, store: str) -> Namespace:
        return self._namespaces.get(store) or self._below.namespace(store)

    def offsets(self) -> dict[str, int | None]:
        # The waiting offsets are read before the written ones: a write in between moves offsets from the first to the
        # second, so that the other order could miss them in both.
        waiting = self._offsets
        return {**self._below.offsets(), **waiting}

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        """Let a commit wait, if `note` has announced it. If the commits are due or too many, write them all.

        A call without a noted commit comes from a restoration. The entries of a restoration are written immediately."""
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
        """Write all waiting commits. Raises `StateBusyError`, after which the commits still wait, or `StateError`."""
        if self._waiting is None:
            return
        self._below.note(self._waiting)
        batches = {store: namespace.waiting.needed() for store, namespace in self._namespaces.items()}
        try:
            self._below.apply({store: batch for store, batch in batches.items() if batch}, self._offsets)
        except BaseException:
            for namespace in self._namespaces.values():
                namespace.written_in_part()
            raise
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
        # The waiting entries go first: if the clear fails halfway, the store may be empty, and must then be restored
        # from the beginning of its changelog.
        self._namespaces[store].written()
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

    def memory(self) -> EngineMemory:
        return self._below.memory()

    def close(self) -> None:
        """Write the waiting commits, and close the storage below. If the write fails, the next owner of the task
        restores these commits from the changelogs."""
        try:
            self.write()
        except StateError as error:
            log.warning("the last commits can't be written, and will be restored from the changelogs: %s", error)
        finally:
            self._let_go()
            self._below.close()


def _bytes(keys: Collection[bytes], values: Iterable[bytes | None]) -> int:
    return sum(map(len, keys)) + sum(map(len, filter(None, values)))


def _of(values: Mapping[str, T], stores: Collection[str]) -> dict[str, T]:
    return {store: value for store, value in values.items() if store in stores}
