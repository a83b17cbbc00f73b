"""The stores of an instance on this machine: from a task's store specs to open engines, and back.

*Guarantees*: a task's stores are open under its directory's lock, and what they were written as is what the topology
says; an error at any step leaves no lock and no handle. A damaged store is set aside and starts empty, at offset None,
while the others keep theirs. A store with a changelog that is at offset None is empty.
*Assumes*: a store at offset None is restored from the beginning of its changelog before it is used.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from milestones.common.clock import Clock
from milestones.common.errors import StateCorruptError, StateError, StateFormatError
from milestones.common.records import TaskId
from milestones.common.state import checkpoint_file as positions
from milestones.common.state.directory import LOCK_FILE, StateDirectory, TaskDirectory
from milestones.common.state.disk import explained, is_plain_name, make_directory, names, remove_tree, some
from milestones.common.state.engine import Engine, Engines, Namespace
from milestones.common.state.manifest import StoreManifest, TaskManifest, unreadable_stores
from milestones.common.state.memory_engine import MemoryEngines
from milestones.common.state.spec import StoreSpec

log = logging.getLogger(__name__)

ROCKSDB, CORRUPT = "rocksdb", "corrupt"

POSITIONS_INTERVAL_MS = 10_000
"""How often an open task writes down how far it is: after a crash the group should know whose state is the newest."""


class LocalState:
    """Opens tasks' stores, in the instance's directory, by its engines. Shared by the instance's threads.

    `stage` and `static_id` (`group_instance_id`) go into the manifests.
    """

    def __init__(self, directory: StateDirectory, engines: Engines, stage: str, static_id: str | None = None) -> None:
        self.directory, self.engines = directory, engines
        self.stage, self.static_id = stage, static_id
        self._open: weakref.WeakSet[TaskState] = weakref.WeakSet()
        self._lock = threading.Lock()

    def open(
        self,
        task: TaskId,
        specs: Sequence[StoreSpec],
        transactional_id: str | None = None,
        owner: str | None = None,
    ) -> TaskState:
        """Lock `task` and open its stores. Without persistent stores nothing is written to disk.

        `StateLockedError` (ask again), `StateFormatError`, `StateError`.
        """
        persistent = [spec for spec in specs if spec.persistent]
        held = self.directory.lock(task, on_disk=bool(persistent), owner=owner)
        state = TaskState(held, self.engines, self.directory.clock)
        try:
            if persistent:
                state.manifest = self._agree(held, persistent, transactional_id)
            for spec in specs:
                state.open(spec)
            state.complete = True
        except BaseException:
            state.close()
            raise
        with self._lock:
            self._open.add(state)
        return state

    def statistics(self) -> dict[tuple[TaskId, str], Mapping[str, int]]:
        """By task and store that is open here: what its engine tells of itself (`Engine.statistics`), without those
        that are opened or closed right now. From any thread."""
        with self._lock:
            states = list(self._open)
        return {(state.task, store): known for state in states for store, known in state.statistics().items()}

    def closed_offsets(self) -> dict[TaskId, dict[str, int]]:
        """By task whose state lies here, open to nobody: its persistent stores' changelog offsets as `positions`
        has them. One that nothing is known of has none. `StateError`."""
        locked = self.directory.locked()
        return {
            task: positions.read(self.directory.task_path(task))
            for task in self.directory.tasks()
            if task not in locked
        }

    def close(self) -> None:
        """Give the directory back. Harmless when repeated."""
        self.directory.close()

    def _agree(self, held: TaskDirectory, specs: Sequence[StoreSpec], transactional_id: str | None) -> TaskManifest:
        """Read the manifest, see that it fits, and write what is true from now on, before any store is opened."""
        written = TaskManifest.read(held.path)
        known = self._known_stores(held, written, specs)
        manifest = TaskManifest(
            application_id=self.directory.path.name,
            task=str(held.task),
            stage=self.stage,
            process_id=self.directory.process_id,
            transactional_id=transactional_id,
            static_id=self.static_id,
            stores={**known, **{spec.name: self._describe(spec, known.get(spec.name)) for spec in specs}},
        )
        if manifest != written:
            manifest.write(held.path)
        return manifest

    def _describe(self, spec: StoreSpec, written: StoreManifest | None) -> StoreManifest:
        return StoreManifest.of(spec, self.engines.name, None if written is None else written.changelog_id)

    def _known_stores(
        self, held: TaskDirectory, written: TaskManifest | None, specs: Sequence[StoreSpec]
    ) -> dict[str, StoreManifest]:
        path = held.path
        if written is None:
            foreign = [name for name in names(path) if name != LOCK_FILE]
            if foreign:
                raise StateFormatError(
                    f"{path} has no manifest but holds {some(foreign)}, which isn't ours: choose another state_dir, "
                    f"or remove {path}"
                )
            return {}
        expected = (self.directory.path.name, str(held.task))
        if (written.application_id, written.task) != expected:
            raise StateFormatError(
                f"{path} holds task {written.task} of application {written.application_id!r}: move it back to where it "
                "was, or remove it"
            )
        for store in unreadable_stores(written, specs, path, self.engines.name):
            log.warning(
                "store %r in %s was written by the engine %r, which %r can't read: it is restored from its changelog",
                store, path, written.stores[store].engine, self.engines.name,
            )  # fmt: skip
            positions.forget(path)
            # Before the manifest says otherwise: after a crash in between it is done again.
            remove_tree(path / ROCKSDB / store)
        return dict(written.stores)


class TaskState:
    """The open stores of one task. `stores`: engine and namespace by store name. `manifest`: what the directory says of
    them; None without persistent stores.

    *Concurrency*: its owner's, but for `statistics`. `_handles` is held while engines or namespaces are closed, and
    while they are asked for statistics: a library may crash when it is asked in the middle of a close.
    """

    def __init__(self, held: TaskDirectory, engines: Engines, clock: Clock) -> None:
        self.task, self.path = held.task, held.path
        self.stores: dict[str, tuple[Engine, Namespace]] = {}
        self._held, self._engines, self._memory = held, engines, MemoryEngines()
        self._specs: dict[str, StoreSpec] = {}
        self.manifest: TaskManifest | None = None
        self.complete = False
        """All stores are open."""
        self._clock, self._next_positions_ms = clock, clock.monotonic_ms()
        self._handles = threading.Lock()

    def open(self, spec: StoreSpec) -> None:
        """Open one more store; a damaged one is set aside first."""
        if spec.name in self.stores:
            raise StateError(f"bug: store {spec.name!r} of task {self.task} is opened twice")
        if not is_plain_name(spec.name):
            raise StateError(f"store {spec.name!r} of task {self.task}: its name can't be that of a directory")
        self._specs[spec.name] = spec
        try:
            self.stores[spec.name] = self._open(spec)
        except StateCorruptError as error:
            self._set_aside(spec, error)
            self.stores[spec.name] = self._open(spec)

    def rebuild(self, store: str, reason: object) -> tuple[Engine, Namespace]:
        """Set the store's files aside and open it empty, at offset None: its files, or its changelog, turned out not to
        be what they were. `reason` is for the log.

        The former engine and namespace are closed.
        """
        spec = self._specs[store]
        with self._handles:
            engine, _ = self.stores.pop(store)
            engine.close()
        self._set_aside(spec, reason)
        self.stores[store] = self._open(spec)
        return self.stores[store]

    def empty(self, store: str) -> Namespace:
        """The store's namespace anew in its engine: empty, at offset None. The former one is closed."""
        engine, _ = self.stores[store]
        with self._handles:
            engine.drop(store)
            namespace = engine.open(store)
        self.stores[store] = engine, namespace
        return namespace

    def changelog_ids(self) -> dict[str, str]:
        """By store: Kafka's id of the topic that it was restored from; stores without a known one are left out."""
        stores = {} if self.manifest is None else self.manifest.stores
        return {name: id for name, store in stores.items() if (id := store.changelog_id) is not None}

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Write down which topics the stores follow from now on; those in memory need none."""
        if self.manifest is None:
            return
        manifest = self.manifest.with_changelogs(ids)
        if manifest != self.manifest:
            manifest.write(self.path)
            self.manifest = manifest

    def statistics(self) -> dict[str, Mapping[str, int]]:
        """By store; nothing while one is being closed. From any thread."""
        if not self._handles.acquire(blocking=False):
            return {}
        try:
            engines = [(name, engine) for name, (engine, _) in list(self.stores.items())]
            return {name: known for name, engine in engines if (known := engine.statistics())}
        except StateError:
            return {}  # closed meanwhile, or broken: its owner will say so
        finally:
            self._handles.release()

    def memory_bytes(self) -> int:
        """Memory of this task's engines; what they share is `Engines.memory_bytes`."""
        return sum(engine.memory_bytes() for engine, _ in self.stores.values())

    def close(self) -> None:
        """Close every engine, then unlock. Harmless when repeated."""
        stores, self.stores = self.stores, {}
        try:
            self._keep_positions(stores)
            self.complete = False
            with self._handles:
                for name, (engine, _) in stores.items():
                    try:
                        engine.close()
                    except Exception:
                        log.exception("closing store %r of task %s", name, self.task)
        finally:
            self._held.unlock()

    def progressed(self) -> None:
        """Write down how far the stores are, if that was long ago."""
        if self._clock.monotonic_ms() >= self._next_positions_ms:
            self._keep_positions(self.stores)

    def _keep_positions(self, stores: Mapping[str, tuple[Engine, Namespace]]) -> None:
        self._next_positions_ms = self._clock.monotonic_ms() + POSITIONS_INTERVAL_MS
        if self.manifest is None or not self.complete:
            return
        persistent = {name: namespace for name, (_, namespace) in stores.items() if self._specs[name].persistent}
        try:
            known = {name: at for name, namespace in persistent.items() if (at := namespace.offset()) is not None}
            positions.write(self.path, known)
        except StateError as error:
            log.warning("how far task %s is can't be written down: %s", self.task, error)

    def _path(self, spec: StoreSpec) -> Path:
        return self.path / ROCKSDB / spec.name

    def _open(self, spec: StoreSpec) -> tuple[Engine, Namespace]:
        engines = self._engines if spec.persistent else self._memory
        if spec.persistent:
            make_directory(self.path / ROCKSDB)
        engine = engines.open(self._path(spec), spec.name)
        try:
            namespace = engine.open(spec.name)
            restorable = spec.logged or spec.source_topic is not None
            if restorable and namespace.offset() is None and any(True for _ in namespace.scan(None, None)):
                # The beginning of a first write that was cut off. Of the keys in it those could survive a restoration
                # that were deleted so long ago that the changelog has forgotten even the deletion.
                engine.drop(spec.name)
                namespace = engine.open(spec.name)
            return engine, namespace
        except BaseException:
            engine.close()
            raise

    def _set_aside(self, spec: StoreSpec, reason: object) -> None:
        """Keep the files of the last damaged store, for whoever wants to know what happened to them."""
        path = self._path(spec)
        if not (spec.persistent and path.exists()):
            return
        positions.forget(self.path)
        kept = self.path / CORRUPT / spec.name
        log.error("store %r of task %s starts empty, its files are kept in %s: %s", spec.name, self.task, kept, reason)
        remove_tree(kept)
        make_directory(kept.parent)
        with explained("move aside", path):
            path.rename(kept)
