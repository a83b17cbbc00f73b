"""The stores of one task: their layers, and the way of committed data into the task's storage.

*Guarantees*: only committed data reaches the storage. All stores of a commit are written in one call, each with its
changelog offset. If such a call fails in the middle, restoring from the changelog repairs it (`TaskStorage.apply`).
*Assumes*: one owner at a time. Restoring needs only this class, so that a standby task consists of little more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from milestones.common.errors import (
    OwnershipError,
    StateBusyError,
    StateCorruptError,
    StateFormatError,
    TaskCorruptedError,
    TopologyError,
)
from milestones.common.records import Emitted, StoreId, TaskId, TopicPartition
from milestones.common.state.cells import UNKNOWN, Cells
from milestones.common.state.changelog import (
    ChangelogRecord,
    HasHeaders,
    Layout,
    Log,
    changelog,
    changelog_with_headers,
    not_logged,
)
from milestones.common.state.commit_log import CommitLog, HistoryLog, Place, RecordLog, TimedLog, safe_order
from milestones.common.state.engine import Batch, Namespace, Span
from milestones.common.state.layers import Staging, StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches
from milestones.common.state.record_caches import TaskCaches
from milestones.common.state.spec import BOUNDED, StoreSpec, is_trimmed
from milestones.common.state.storage import CommitMade, OpenStores, TaskStorage
from milestones.common.state.stores.emit_buffer import EmitBuffer
from milestones.common.state.stores.kinds import kind_of, layout_of
from milestones.common.state.stores.rows import Rows, StoreParts
from milestones.common.state.stores.suppress_buffer import PLACE_BYTES
from milestones.common.state.times import observed_time
from milestones.common.task.gone_rows import gone_by, kept_by_emission, seen_before, without_gone
from milestones.common.task.metadata import CommittedNumbers
from milestones.common.task.scope import RecordInWork, RecordScope
from milestones.common.task.source_changelogs import picks
from milestones.common.topology.nodes import SubTopology

Write = Callable[[Mapping[str, Batch], Mapping[str, int]], None]
"""A function of (entries by store, changelog offsets by store), like `TaskStorage.apply`."""

NO_ROW: Final = (struct.error, ValueError, IndexError)
"""The errors that layouts raise for bytes that have another form."""


class OpenedStore:
    """One store of a task: its spec, its layers, and the store that user code sees. The last one exists as soon as a
    program is made."""

    spec: StoreSpec
    namespace: Namespace
    read_cache: ReadCache

    def __init__(self, spec: StoreSpec, namespace: Namespace, touched: list[Staging], read_cache: ReadCache) -> None:
        self.spec, self.namespace, self.read_cache = spec, namespace, read_cache
        self.layers: StoreLayers = StoreLayers(namespace, touched, read_cache, spec.name)
        self.layout: Layout = layout_of(spec)
        self.log: Log = not_logged
        self.commit_log: CommitLog | None = None
        self.expiring: list[Span] = []
        self.expired: list[Span] = []
        self.typed: Rows | None = None

    @property
    def buffer(self) -> EmitBuffer | None:
        return None if self.typed is None else self.typed.buffer

    def rebase(self, namespace: Namespace) -> None:
        """Read from `namespace` from now on, after the storage has emptied the store."""
        self.namespace = namespace
        self.layers.rebase(namespace)
        self.layout = layout_of(self.spec)  # a new layout, as the old one remembers times of the former content
        self.expiring, self.expired = [], []


class TaskStores:
    """All stores of one task.

    `scope` and `record` are those of the task's record in work. `following`: True for a standby, which emits nothing
    itself. Windows that its successor, or another task, restores may still have to be emitted: under `at_least_once`,
    the changelog is ahead of the committed input and of the outputs after a crash.
    """

    def __init__(
        self,
        task: TaskId,
        sub: SubTopology,
        opener: OpenStores,
        scope: RecordScope,
        read_caches: ReadCaches,
        caches: TaskCaches,
        cells: Cells,
        *,
        following: bool = False,
        logs_at_commit: bool = False,
        transactional: bool = False,
    ) -> None:
        """`logs_at_commit`: stores log only at a commit, and only the last value of each key where keys collapse.
        `transactional`: as `TaskSettings.transactional`."""
        self._following, self._logs_at_commit, self._transactional = following, logs_at_commit, transactional
        self._task, self._sub, self._opener, self._scope = task, sub, opener, scope
        self._storage: TaskStorage | None = None
        self._read_caches, self._caches, self._cells = read_caches, caches, cells
        self._stores: dict[str, OpenedStore] = {}
        self._doubtful: dict[str, set[bytes]] = {}
        self._unread: dict[str, list[tuple[bytes, bytes | None]]] = {}
        """Rolled-back writes of stores that couldn't be read then. `log_again` decides later which of these writes must
        be logged again."""
        self._unwritten: dict[str, tuple[Batch, int]] = {}
        self._picks = picks(sub)
        self._trimmed = tuple(spec for spec in sub.stores if is_trimmed(spec))

    @property
    def storage(self) -> TaskStorage:
        """The open storage that contains the stores."""
        assert self._storage is not None  # opened
        return self._storage

    def open(self) -> None:
        """Open all stores, or none."""
        storage = self._storage = self._opener()
        for spec in self._sub.stores:
            read_cache = kind_of(spec).cache(self._read_caches, spec)
            self._stores[spec.name] = OpenedStore(spec, storage.namespace(spec.name), self._scope.touched, read_cache)

    def make_typed(self, record: RecordInWork, *, cached: bool) -> None:
        """Make the stores that user code sees. The stores stay closed until `open_to_user_code`. Stores of an earlier
        program are closed for good."""
        for name, store in self._stores.items():
            if store.typed is not None:
                store.typed.close()
            spec, layers = store.spec, store.layers
            store.layout = layout_of(spec)  # a new layout, as the old one remembers times of the restoration
            buffered = cached and spec.cached
            log, buffer = self._log_of(store, record, emits_later=buffered and spec.of_dsl), None
            if buffered:
                buffer = EmitBuffer(store.layout, layers, self._scope.touched, record, log)
                log = buffer.mark
            of_commit = buffer is None and store.commit_log is not None and store.commit_log.knows_puts
            store.typed = kind_of(spec).store(StoreParts(
                self._task, layers, store.read_cache, spec.key_serde, spec.value_serde, self._topic(name), log, record,
                spec, self._cells, buffer, logs_puts=not of_commit,
            ))  # fmt: skip

    def _log_of(self, store: OpenedStore, record: RecordInWork, *, emits_later: bool) -> Log:
        """Return the function that logs the store's writes. Sets `store.log`, which logs the writes that a changelog
        always needs.

        `emits_later`: the operator's updates wait in a cache for a flush. A flush emits nothing for a key that was
        absent before and is absent now. So the changelog must not contain an uncommitted deletion: processed once more,
        the deletion must find the key's old row.
        """
        kind, spec = kind_of(store.spec), store.spec
        store.log = self._log(store, self._scope.outputs.append, record)
        waits = kind.logs_at_commit or spec.results_wait or emits_later
        if store.log is not_logged or not (self._logs_at_commit or waits):
            return store.log
        history = kind.history or spec.logs_headers
        if store.commit_log is None:
            store.commit_log = self._commit_log(store, record, history=history)
        if self._logs_at_commit or history:
            store.log = self._log(store, store.commit_log.append, record)
        return store.log if history else store.commit_log.note

    def _commit_log(self, store: OpenedStore, record: RecordInWork, *, history: bool) -> CommitLog:
        kind, spec, touched = kind_of(store.spec), store.spec, self._scope.touched
        rows_depend = spec.results_wait and spec.window_ms > 0  # windows may be sliding windows
        if kind.changelog is changelog and not (history or (kind.timed and rows_depend)):
            place = Place(self._topic(spec.name), self._task.partition, store.layout.key_of)
            if kind.timed:
                return TimedLog(store.layers, touched, record, place, store.layout.logs if spec.closing else None)
            return RecordLog(store.layers, touched, record, place, transactional=self._transactional)
        of = HistoryLog if history else CommitLog
        return of(store.layers, touched, record, rows_have_times=kind.timed, rows_depend=rows_depend)

    def _topic(self, store: str) -> str:
        return self._sub.changelogs.get(store, f"{store}-changelog")

    def _log(
        self, store: OpenedStore, append: Callable[[Emitted], None], record: HasHeaders
    ) -> Log:
        """Return a function that passes the changelog records of a store to `append`. `record`: the record in work,
        whose processing causes the write."""
        spec = store.spec
        if not spec.logged or spec.source_topic is not None:
            return not_logged
        topic, partition = self._topic(spec.name), self._task.partition
        if spec.logs_headers:
            return changelog_with_headers(topic, partition, spec.name, append, record)
        return kind_of(spec).changelog(topic, partition, spec.name, append, store.layout.key_of, record)

    def open_to_user_code(self) -> None:
        """Open the stores for user code."""
        for store in self._stores.values():
            if store.typed is not None:
                store.typed.open()

    def close_to_user_code(self) -> None:
        """Close the stores for user code, and return their shares of the instance's caches."""
        for store in self._stores.values():
            if store.typed is not None:
                store.typed.close()
            store.read_cache.leave()
        self._caches.release()

    def typed(self, name: str) -> Rows:
        """Return the store `name` as user code sees it. Raises `TopologyError` if the sub-topology has no such store.
        """
        store = self._stores.get(name)
        if store is None or store.typed is None:
            raise TopologyError(
                f"task {self._task} has no store {name!r}, only {sorted(self._stores) or 'none at all'}; add it to the "
                "topology and connect it to the processor that uses it"
            )
        return store.typed

    def held(self) -> dict[str, tuple[int, int]]:
        """Return the number and the bytes of the updates that stores keep back, by store. Any thread may ask."""
        found = {}
        for name, store in list(self._stores.items()):
            held, typed = kind_of(store.spec).held, store.typed
            if held is not None and typed is not None:
                found[name] = held(typed)
        return found

    def cached(self) -> list[Rows]:
        """Return the stores that have an emit buffer."""
        return [store.typed for store in self._stores.values() if store.typed is not None and store.buffer is not None]

    def forget(self) -> None:
        """Make all stores forget the values that they have cached."""
        for store in self._stores.values():
            store.read_cache.clear()

    # -- restoration

    def changelog_offsets(self) -> dict[str, int | None]:
        """Return, for each logged store, the changelog offset up to which the store is complete, or will be when its
        `unwritten` records are written. None: restore from the beginning. This also holds for a damaged store that
        couldn't be set aside."""
        offsets = {**self.storage.offsets(), **{name: at for name, (_, at) in self._unwritten.items()}}
        return {name: offsets.get(name) for name in self._sub.changelogs}

    def behind(self, number: int) -> list[str]:
        """Return the names of the stores on disk that have no changelog and whose data isn't that of commit `number`,
        the last commit in Kafka.

        Such a store lacks writes, or was left behind while another instance had the task. The list is empty if the
        storage keeps no commit numbers.
        """
        written = self.storage.commit_number()
        if written is None or written == number:
            return []
        specs = [store.spec for store in self._stores.values()]
        return [spec.name for spec in specs if spec.persistent and not (spec.logged or spec.source_topic)]

    def restore(self, name: str, records: Iterable[ChangelogRecord], next_offset: int) -> None:
        """Write changelog records, in order, to the storage. The store is then complete up to `next_offset`.

        If the storage is busy, the records wait for `write_restored`. Restore no more records of this store before.
        """
        store = self._stores[name]
        store.read_cache.clear()
        if name in self._picks:
            records = self._picks[name](records)
        entries = self._entries(store, records, next_offset)
        try:
            self._write_restored(name, entries, next_offset)
        except StateBusyError:
            self._unwritten[name] = entries, next_offset

    @property
    def unwritten(self) -> bool:
        """True if restored records wait for `write_restored`."""
        return bool(self._unwritten)

    def write_restored(self) -> None:
        """Write the restored records that wait. Raises `StateBusyError` if some still wait."""
        for name, restored in list(self._unwritten.items()):
            self._write_restored(name, *restored)
            del self._unwritten[name]

    def _write_restored(self, name: str, entries: Batch, next_offset: int) -> None:
        self.storage.apply({name: entries}, {name: next_offset})
        self._expire_restored(name, self._stores[name])

    def _gone_by_commit(self, store: OpenedStore) -> list[Span]:
        """Return the expired spans of a store that is restored. The time of the store's last commit decides, as the
        changelog may be ahead of this commit. If no commit has the time, the times of the restored records decide."""
        time = store.layout.restored_time
        if self._cells.exact:
            time = min(time, self._cells.known_time(observed_time(store.spec.name)))
        return store.layout.expired(time)

    def _expire_restored(self, name: str, store: OpenedStore) -> None:
        """Delete the expired rows, or have them emitted first."""
        gone = self._gone_by_commit(store)
        if not store.spec.closing:
            self._expire(store, gone)
        elif self._following:
            self._expire(store, self._gone_and_emitted(store, gone))
        elif gone:  # the rows may still have to be emitted; they are dropped then, and no reader sees them
            self._cells.time(observed_time(name), seen_before(gone, store.spec))

    def _entries(self, store: OpenedStore, records: Iterable[ChangelogRecord], next_offset: int) -> Batch:
        """Return the entries that changelog records write to a store. Raises `StateFormatError` if a record isn't one
        of this kind of store."""
        try:
            entries = store.layout.restored(records, store.namespace)
            return entries if store.spec.closing else without_gone(entries, self._gone_by_commit(store))
        except NO_ROW as error:
            raise StateFormatError(
                f"{StoreId(self._task, store.spec.name)}: a record of its changelog before offset {next_offset} is no "
                f"row of a {store.spec.kind} store ({error}): another topology, or another application, writes to that "
                "topic. Unnamed stores are numbered in the order of the program: compare `describe()` of both, "
                "and give this store a name that no other one had, or reset the application"
            ) from error

    def _gone_and_emitted(self, store: OpenedStore, gone: list[Span]) -> list[Span]:
        """Return those of the expired spans that the group has committed as emitted."""
        emitted = store.layout.expired(kept_by_emission(store.spec, self._cells.kept(store.spec.name).value))
        return gone if gone <= emitted else emitted

    def know(self, committed: CommittedNumbers) -> None:
        """Take the committed numbers: the stores' times, and the time up to which windows are emitted."""
        self._cells.take_commit(committed.numbers, exact=committed.exact)

    def ingest(self, name: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        """Load sorted table files into an empty store, one step per item of the iterator. `restore` sets their offset
        afterwards. `prefix`: the bytes that the files' keys have before the store's own keys."""
        return self.storage.ingest(name, files, prefix)

    def discard(self, name: str) -> None:
        """Empty the store, which contains an unfinished `ingest`."""
        self._unwritten.pop(name, None)
        self._stores[name].rebase(self.storage.clear(name))

    def clear(self, name: str, reason: object) -> None:
        """Empty the store because its content can't be trusted. The store will be restored from the beginning of its
        changelog."""
        self._unwritten.pop(name, None)
        self._stores[name].rebase(self.storage.clear(name, reason))

    # -- commit

    def freeze(self) -> None:
        for name, store in self._stores.items():
            store.layers.freeze()
            if store.commit_log is not None:
                store.commit_log.freeze()
            if store.spec.kind in BOUNDED:
                store.expiring = store.layout.expired(self._observed(name, store.spec))

    def _observed(self, name: str, spec: StoreSpec) -> int:
        """Return the time by which rows of a store expire. A window that still has to be emitted doesn't expire."""
        return gone_by(spec, int(self._cells.cell(observed_time(name), -1).merged), self._cells.kept_number(name))

    def gone(self, memory: Mapping[str, Any]) -> dict[TopicPartition, int]:
        """Return the time (ms) up to which rows have expired, for each partition of the trimmed changelogs.

        `memory`: the values that a commit remembers (`Cells.values`). A store that has seen no time is left out.
        """
        found: dict[TopicPartition, int] = {}
        for spec in self._trimmed:
            emitted = memory.get(spec.name, UNKNOWN) if spec.name in self._cells.kept_names else None
            time = gone_by(spec, int(memory.get(observed_time(spec.name), UNKNOWN)), emitted)
            if time >= spec.retention_ms:
                found[TopicPartition(self._topic(spec.name), self._task.partition)] = time - spec.retention_ms
        return found

    def log_frozen(self) -> Iterator[Emitted]:
        """Yield the changelog records of the frozen commit, for the stores that log at a commit. The records are made
        while they are read, and are the same in each call until the commit is applied."""
        for store in self._stores.values():
            if store.commit_log is not None:
                yield from store.commit_log.records(store.layout, partial(self._log, store))

    def applied(
        self, offsets: Mapping[str, int], write: Write | None = None, made: CommitMade | None = None
    ) -> None:
        """Write the frozen layers.

        `offsets`: by store, the next offset of its changelog after this commit. `write` is called in place of the
        storage's `apply`. `made`: the commit, for the storage to record. Raises `StateBusyError`: the layers are
        unchanged then, and can be written later.
        """
        batches = {}
        for name, store in self._stores.items():
            if batch := store.layers.to_write():
                batches[name] = batch
                # Some stores write what no changelog has, such as the last use of an entry, even if nothing is put.
                if offsets.get(name) is None and store.spec.logged and any(map(store.layout.logs, batch)):
                    raise OwnershipError(
                        f"task {self._task} commits {len(batch)} writes of store {name} without an offset of its "
                        "changelog: this is a bug"
                    )
        if made is not None:
            self.storage.note(made)
        (write or self.storage.apply)(batches, offsets)
        for store in self._stores.values():
            store.layers.applied()
            if store.commit_log is not None:
                store.commit_log.applied()
            self._expire(store, store.expiring)
        self.trust_changelogs()

    @property
    def write_due_ms(self) -> int | None:
        """The time at which the storage should write the commits that wait. None if none waits."""
        return None if self._storage is None else self._storage.write_due_ms()

    def write_waiting(self) -> None:
        """Make the storage write the commits that wait. Raises `StateBusyError` or another `StateError`."""
        self.storage.write()

    def _expire(self, store: OpenedStore, spans: list[Span]) -> None:
        """Make the storage delete the expired rows, once. If the storage is busy, they are deleted after a later
        commit."""
        if spans == store.expired:
            return
        try:
            self.storage.expire(store.spec.name, spans)
        except StateBusyError:
            return
        store.expired = spans

    def thaw(self) -> None:
        for store in self._stores.values():
            store.layers.thaw()
            if store.commit_log is not None:
                store.commit_log.thaw()

    def abort(self, *, logged: bool) -> None:
        """Drop all uncommitted writes. `logged`: True if their changelog records may stay in the changelogs."""
        for name, store in self._stores.items():
            if logged and store.log is not not_logged:
                self._doubt(name, store)
            store.layers.abort()
            for staged in (store.buffer, store.commit_log):
                if staged is not None:
                    staged.abort()
        self._caches.release()

    def _doubt(self, name: str, store: OpenedStore) -> None:
        """Note the keys of a store's uncommitted writes whose committed values must be logged once more.

        A damaged store, perhaps the reason for the roll-back, doesn't make the roll-back fail. If this store isn't
        rebuilt, `log_again` reads it later.
        """
        doubtful, uncommitted = self._doubtful.setdefault(name, set()), store.layers.uncommitted
        try:
            doubtful.update(store.layout.doubtful(uncommitted(), store.namespace))
        except (StateCorruptError, TaskCorruptedError):
            self._unread.setdefault(name, []).extend(uncommitted())

    def log_again(self, timestamp: int) -> None:
        """Log the committed values of all keys for which changelogs may contain rolled-back records. The changelogs
        then end with the same values as the stores. This is repeated after each roll-back until a commit confirms these
        records."""
        for name, writes in self._unread.items():
            store = self._stores[name]
            self._doubtful[name].update(store.layout.doubtful(writes, store.namespace))
        self._unread.clear()
        for name, doubts in self._doubtful.items():
            store = self._stores[name]
            for doubt, _ in safe_order([(doubt, store.namespace.get(doubt)) for doubt in doubts]):
                store.layout.log_again(store.log, doubt, store.namespace, timestamp)

    def trust_changelogs(self) -> None:
        """Log no committed values once more: the changelogs end with the same values as the stores, or the stores are
        restored from them."""
        self._doubtful.clear()
        self._unread.clear()

    def uncommitted_bytes(self) -> int:
        logs = (store.commit_log for store in self._stores.values())
        noted = sum(log.memory_bytes() for log in logs if log is not None)
        return noted + sum(store.layers.uncommitted_bytes() for store in self._stores.values())

    def kept_bytes(self) -> int:
        """Return the approximate memory that is needed for the order of kept-back updates. Any thread may ask."""
        return sum(PLACE_BYTES * count for count, _ in self.held().values())

    def release(self) -> TaskStorage:
        """Return the storage, still open. Unapplied writes are dropped. No engine is called."""
        self.close_to_user_code()
        storage, self._storage, self._stores, self._unwritten = self.storage, None, {}, {}
        return storage

    def close(self) -> None:
        """Close the storage. Unapplied writes are dropped. Harmless when repeated."""
        self.close_to_user_code()
        if self._storage is not None:
            self._storage.close()
