"""The open stores of one task in its directory: an engine and a folder per store.

*Guarantees*: a damaged store is set aside and starts empty, at offset None. The other stores keep their content and
their offsets. If a store has a changelog and its offset is None, the store is empty after it was opened.
*Assumes*: the directory's lock is held. A store at offset None is restored from the beginning of its changelog before
it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from milestones.common.clock import Clock
from milestones.common.errors import StateCorruptError, StateError
from milestones.common.records import StoreId
from milestones.common.state.checkpoint_file import Checkpoints
from milestones.common.state.directory import TaskDirectory
from milestones.common.state.disk import exists, explained, is_plain_name, make_directory, remove_tree
from milestones.common.state.engine import Batch, Engine, EngineMemory, Engines, Namespace, summed
from milestones.common.state.engines.memory_engine import MemoryEngines
from milestones.common.state.manifest import TaskManifest
from milestones.common.state.spec import StoreSpec
from milestones.common.state.store_engine import EnginePerStore, StoreEngine

log: Final = logging.getLogger(__name__)

T = TypeVar("T")

ROCKSDB: Final = "rocksdb"
CORRUPT: Final = "corrupt"

POSITIONS_INTERVAL_MS: Final = 10_000
"""The time between two writes of an open task's checkpoint file. After a crash the instance reports its offsets to the
group, so that the assignor finds the newest state."""


class LocalTaskStorage(EnginePerStore):
    """A `TaskStorage` on disk. `manifest`: the directory's description of the stores. None if no store is persistent.

    *Concurrency*: only the thread that has the task calls the methods. Any thread may call `statistics` and
    `memory_bytes`.
    """

    path: Path

    def __init__(self, held: TaskDirectory, engines: Engines, clock: Clock, checkpoints: Checkpoints) -> None:
        self.task, self.path = held.task, held.path
        self._held, self._engines, self._memory = held, engines, MemoryEngines()
        self._checkpoints = checkpoints
        self._specs: dict[str, StoreSpec] = {}
        self.stores = {}
        self.manifest: TaskManifest | None = None
        self.complete: bool = False
        """True while all stores are open."""
        self._clock, self._next_positions_ms = clock, clock.monotonic_ms()

    def open(self, spec: StoreSpec) -> None:
        """Open one more store. If its files are damaged, they are set aside, and the store starts empty."""
        if spec.name in self._specs:
            raise StateError(f"bug: store {spec.name!r} of task {self.task} is opened twice")
        if not is_plain_name(spec.name):
            raise StateError(f"store {spec.name!r} of task {self.task}: its name can't be the name of a directory")
        self._specs[spec.name] = spec
        try:
            self.stores[spec.name] = self._open(spec)
        except StateCorruptError as error:
            self._set_aside(spec, error)
            self.stores[spec.name] = self._open(spec)

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        super().apply(batches, offsets)
        if self._clock.monotonic_ms() >= self._next_positions_ms:
            self._keep_positions(self.stores)

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        if reason is None:
            return super().clear(store)
        self.stores.pop(store).engine.close()
        self._set_aside(self._specs[store], reason)
        self.stores[store] = self._open(self._specs[store])
        return self.stores[store].namespace

    def changelog_ids(self) -> Mapping[str, str]:
        stores = {} if self.manifest is None else self.manifest.stores
        return {name: id for name, store in stores.items() if (id := store.changelog_id) is not None}

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        if self.manifest is None:
            return
        manifest = self.manifest.with_changelogs(ids)
        if manifest != self.manifest:
            manifest.write(self.path)
            self.manifest = manifest

    def statistics(self) -> dict[str, Mapping[str, int]]:
        """Return `Engine.statistics` keyed by store. Stores that are being opened or closed are left out."""
        told = self._ask(lambda engine: engine.statistics())
        return {name: known for name, known in told.items() if known}

    def memory(self) -> EngineMemory:
        """Return the memory of this task's engines, without the memory that engines share (`Engines.memory`)."""
        return summed(self._ask(lambda engine: engine.memory()).values())

    def _ask(self, question: Callable[[Engine], T]) -> dict[str, T]:
        told = {}
        for name, store in list(self.stores.items()):
            try:
                told[name] = question(store.engine)
            except StateError:
                continue  # the engine was closed just now, or is broken, which its owner reports
        return told

    def close(self) -> None:
        stores, self.stores = self.stores, {}
        try:
            self._keep_positions(stores)
            self.complete = False
            for name, store in stores.items():
                try:
                    store.engine.close()
                except Exception:
                    log.exception("closing store %r of task %s", name, self.task)
        finally:
            self._held.unlock()

    # -- on disk

    def _keep_positions(self, stores: Mapping[str, StoreEngine]) -> None:
        """Write the stores' changelog offsets to the checkpoint file."""
        self._next_positions_ms = self._clock.monotonic_ms() + POSITIONS_INTERVAL_MS
        if self.manifest is None or not self.complete:
            return
        persistent = {name: store.offset for name, store in stores.items() if store.spec.persistent}
        try:
            self._checkpoints.write(self.task, {name: at for name, at in persistent.items() if at is not None})
        except StateError as error:
            log.warning("the offsets of task %s can't be written to its checkpoint file: %s", self.task, error)

    def _path(self, spec: StoreSpec) -> Path:
        return self.path / ROCKSDB / spec.name

    def _open(self, spec: StoreSpec) -> StoreEngine:
        engines = self._engines if spec.persistent else self._memory
        if spec.persistent:
            make_directory(self.path / ROCKSDB)
        owners = {spec.name: (StoreId(self.task, spec.name),)}
        engine = engines.open(self._path(spec), owners, [spec.name])
        try:
            store = self.store_engine(spec, engine)
            restorable = spec.logged or spec.source_topic is not None
            if restorable and store.offset is None and any(True for _ in store.namespace.scan(None, None)):
                # The store has the first steps of a write that broke off. A key in them could survive a restoration:
                # the changelog may have been compacted so far that even the key's deletion is no longer in it.
                store.empty()
            return store
        except BaseException:
            engine.close()
            raise

    def _set_aside(self, spec: StoreSpec, reason: object) -> None:
        """Move the store's files into the folder of damaged stores. Files of an earlier damage are deleted."""
        path = self._path(spec)
        if not (spec.persistent and exists(path)):
            return
        self._checkpoints.forget(self.task)
        kept = self.path / CORRUPT / spec.name
        log.error("store %r of task %s starts empty, its files are kept in %s: %s", spec.name, self.task, kept, reason)
        remove_tree(kept)
        make_directory(kept.parent)
        with explained("move aside", path):
            path.rename(kept)
