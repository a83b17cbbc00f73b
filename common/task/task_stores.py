"""The stores of one task: engines, layers, and the way of committed data into engines.

*Guarantees*: only committed data reaches an engine, in `steps` (a write holds the GIL), the last one of each store
together with its changelog offset; a torn apply is repaired by replay. A store without changelog gets one step, however
large, as nothing would repair it: `statestore_uncommitted_max_bytes`, which asks for a commit, is all that bounds it.
*Assumes*: one owner at a time. Restoring needs nothing but this class: a standby task is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from milestones.common.errors import OwnershipError, TopologyError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.changelog import ChangelogRecord, Log, changelog, log_stored, not_logged, restored
from milestones.common.state.emit_buffer import EmitBuffer
from milestones.common.state.engine import Batch, Engine, Namespace
from milestones.common.state.layers import Staging, StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches
from milestones.common.state.record_caches import TaskCaches
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.state.steps import steps
from milestones.common.state.stores import KeyValueStore, TimestampedKeyValueStore
from milestones.common.task.scope import RecordInWork, RecordScope
from milestones.common.topology.nodes import SubTopology

KINDS: Final[Mapping[StoreKind, type[KeyValueStore]]] = {
    "key-value": KeyValueStore,
    "timestamped-key-value": TimestampedKeyValueStore,
}


class OpenState(Protocol):
    """A task's open engines, its directory locked for it (`common.state.local.TaskState`)."""

    stores: dict[str, tuple[Engine, Namespace]]

    def rebuild(self, store: str, reason: object) -> tuple[Engine, Namespace]:
        """The store again, empty, at offset None. `reason` is for the log."""
        ...

    def empty(self, store: str) -> Namespace:
        """The store's namespace anew in its engine: empty, at offset None."""
        ...

    def changelog_ids(self) -> Mapping[str, str]:
        """By persistent store: Kafka's id of the topic that it follows, where it is known."""
        ...

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Remember, on disk, which topics the stores follow; stores in memory are passed over."""
        ...

    def progressed(self) -> None:
        """Offsets have grown: now and then that is written down, for whoever wants to know it without opening."""
        ...

    def memory_bytes(self) -> int: ...

    def close(self) -> None:
        """Close the engines, give the directory back. Harmless when repeated."""
        ...


OpenStores = Callable[[], OpenState]
"""Opens the stores of a task: `StateLockedError` (ask again), `StateError`."""


def source_changelogs(sub: SubTopology, task: TaskId) -> frozenset[TopicPartition]:
    """The input partitions of a task that serve as changelogs. What the group hasn't committed of them is input."""
    return frozenset(
        TopicPartition(spec.source_topic, task.partition)
        for spec in sub.stores
        if spec.source_topic is not None and spec.name in sub.changelogs
    )


class OpenedStore:
    """One store of a task: its spec, engine, layers; and, once a program is made, what user code sees of it."""

    def __init__(
        self, spec: StoreSpec, engine: Engine, namespace: Namespace, touched: list[Staging], read_cache: ReadCache
    ) -> None:
        self.spec, self.engine, self.namespace, self.read_cache = spec, engine, namespace, read_cache
        self.layers = StoreLayers(namespace, touched, read_cache)
        self.log: Log = not_logged
        self.typed: KeyValueStore | None = None

    @property
    def buffer(self) -> EmitBuffer | None:
        return None if self.typed is None else self.typed.buffer

    def write(self, batch: Batch, offset: int | None) -> None:
        """Committed entries into the engine, up to the changelog offset `offset` (exclusive)."""
        name = self.namespace.name
        offsets = {} if offset is None else {name: offset}
        if not (batch or offsets):
            return
        *first, last = steps(batch) if self.spec.logged else (batch,)
        for step in first:
            self.engine.apply({name: step}, {})
        self.engine.apply({name: last}, offsets)


class TaskStores:
    """All stores of one task. `scope` and `record` are those of the task's record in work."""

    def __init__(
        self,
        task: TaskId,
        sub: SubTopology,
        opener: OpenStores,
        scope: RecordScope,
        read_caches: ReadCaches,
        caches: TaskCaches,
    ) -> None:
        self._task, self._sub, self._opener, self._scope = task, sub, opener, scope
        self._state: OpenState | None = None
        self._read_caches, self._caches = read_caches, caches
        self._stores: dict[str, OpenedStore] = {}
        self._doubtful: dict[str, set[bytes]] = {}

    @property
    def state(self) -> OpenState:
        """Where the open engines come from."""
        assert self._state is not None  # opened
        return self._state

    def __iter__(self) -> Iterator[OpenedStore]:
        return iter(self._stores.values())

    def __getitem__(self, name: str) -> OpenedStore:
        return self._stores[name]

    def open(self) -> None:
        """Open the engines; all or none."""
        self._state = self._opener()
        for spec in self._sub.stores:
            engine, namespace = self._state.stores[spec.name]
            read_cache = ReadCache(self._read_caches)
            self._stores[spec.name] = OpenedStore(spec, engine, namespace, self._scope.touched, read_cache)

    def make_typed(self, record: RecordInWork, *, cached: bool) -> None:
        """Make what user code sees; it stays shut until `let_in`, and what was made before from now on."""
        for name, store in self._stores.items():
            if store.typed is not None:
                store.typed.close()
            spec, layers = store.spec, store.layers
            topic = self._sub.changelogs.get(name, f"{name}-changelog")
            if spec.logged and spec.source_topic is None:
                store.log = changelog(topic, self._task.partition, name, self._scope.outputs.append)
            log, buffer = store.log, None
            if cached and spec.cached:
                buffer = EmitBuffer(spec.kind, layers, self._scope.touched, record, log)
                log = buffer.mark
            store.typed = KINDS[spec.kind](
                self._task, layers, store.read_cache, spec.key_serde, spec.value_serde, topic, log, record, buffer
            )

    def let_in(self) -> None:
        """User code may use the stores now."""
        for store in self._stores.values():
            if store.typed is not None:
                store.typed.open()

    def keep_out(self) -> None:
        """User code may no longer use the stores; they give back what they share with other tasks' stores."""
        for store in self._stores.values():
            if store.typed is not None:
                store.typed.close()
            store.read_cache.leave()
        self._caches.release()

    def typed(self, name: str) -> KeyValueStore:
        """What user code sees of the store `name`; `TopologyError` when the sub-topology has no such store."""
        store = self._stores.get(name)
        if store is None or store.typed is None:
            raise TopologyError(
                f"task {self._task} has no store {name!r}, only {sorted(self._stores) or 'none at all'}; add it to the "
                "topology and connect it to the processor that uses it"
            )
        return store.typed

    def cached(self) -> list[KeyValueStore]:
        """The stores with an emit buffer."""
        return [store.typed for store in self._stores.values() if store.typed is not None and store.buffer is not None]

    def forget(self) -> None:
        """Read everything anew."""
        for store in self._stores.values():
            store.read_cache.clear()

    # -- restoration

    def changelog_offsets(self) -> dict[str, int | None]:
        """By logged store: the changelog offset up to which it is complete, None for from the beginning."""
        return {name: self._stores[name].namespace.offset() for name in self._sub.changelogs}

    def restore(self, name: str, records: Iterable[ChangelogRecord], next_offset: int) -> None:
        """Changelog records, in order, straight into the engine, which is complete up to `next_offset` then."""
        store = self._stores[name]
        store.read_cache.clear()
        store.write(restored(store.spec.kind, records), next_offset)
        self.state.progressed()

    def ingest(self, name: str, files: Sequence[Path]) -> Iterator[None]:
        """Sorted table files into the engine of an empty store, in steps; `restore` says then how far it is."""
        store = self._stores[name]
        return store.engine.ingest(store.namespace.name, files)

    def discard(self, name: str) -> None:
        """Make the store empty: what is in it is the beginning of something that wasn't finished."""
        store = self._stores[name]
        store.namespace = self.state.empty(name)
        store.layers.rebase(store.namespace)

    def clear(self, name: str, reason: object) -> None:
        """Make the store empty, to be restored from the beginning of its changelog."""
        store = self._stores[name]
        store.engine, store.namespace = self.state.rebuild(name, reason)
        store.layers.rebase(store.namespace)

    # -- commit

    def freeze(self) -> None:
        for store in self._stores.values():
            store.layers.freeze()

    def applied(self, offsets: Mapping[str, int]) -> None:
        """Write what is frozen. `offsets`: by store, its changelog's next offset after this commit."""
        for name, store in self._stores.items():
            batch = store.layers.frozen() or {}
            offset = offsets.get(name)
            if batch and offset is None and store.spec.logged:
                raise OwnershipError(
                    f"task {self._task} commits {len(batch)} writes of store {name} without an offset of its "
                    "changelog: this is a bug"
                )
            store.write(batch, offset)
            store.layers.applied()
        self.trust_changelogs()
        self.state.progressed()

    def thaw(self) -> None:
        for store in self._stores.values():
            store.layers.thaw()

    def abort(self, *, logged: bool) -> None:
        """`logged`: what was logged of it may stay in the changelogs."""
        for name, store in self._stores.items():
            if logged and store.log is not not_logged:
                self._doubtful.setdefault(name, set()).update(store.layers.uncommitted_keys())
            store.layers.abort()
            if store.buffer is not None:
                store.buffer.abort()
        self._caches.release()

    def log_again(self, timestamp: int) -> None:
        """Log the committed values of all keys of which changelogs may have others, so that they end as the stores
        are. Repeated after each roll-back, until a commit says that all of it is there."""
        for name, keys in self._doubtful.items():
            store = self._stores[name]
            for key in sorted(keys):
                log_stored(store.spec.kind, store.log, key, store.namespace.get(key), timestamp)

    def trust_changelogs(self) -> None:
        """The changelogs end as the stores are, or the stores are restored from them."""
        self._doubtful.clear()

    def uncommitted_bytes(self) -> int:
        return sum(store.layers.uncommitted_bytes() for store in self._stores.values())

    def memory_bytes(self) -> int:
        """Memory of the engines; what they share with other tasks isn't in it."""
        return 0 if self._state is None else self._state.memory_bytes()

    def release(self) -> OpenState:
        """Give the engines away, open, with what is applied; what isn't is dropped."""
        self.keep_out()
        for name, offset in self.changelog_offsets().items():
            if offset is None and any(True for _ in self._stores[name].namespace.scan(None, None)):
                self.discard(name)
        state, self._state, self._stores = self.state, None, {}
        return state

    def close(self) -> None:
        """Close the engines; what isn't applied is dropped. Harmless when repeated."""
        self.keep_out()
        if self._state is not None:
            self._state.close()

