"""The state manager of every stage before M6: a directory per task, an engine per store.

*Guarantees*: while a task's stores are open, its directory is locked. The stores' files have the kinds that the
topology names. If a step of opening fails, no lock and no file handle is left. Open stores have the guarantees of
`task_storage.py`.
*Assumes*: as `task_storage.py`. Called from any thread.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from milestones.common.errors import StateError, StateFormatError
from milestones.common.records import GLOBAL, TaskId
from milestones.common.state.checkpoint_file import Checkpoints
from milestones.common.state.cleaner import remove_unused
from milestones.common.state.directory import LOCK_FILE, StateDirectory, TaskDirectory
from milestones.common.state.disk import names, remove_tree, some
from milestones.common.state.engine import EngineMemory, Engines, summed
from milestones.common.state.global_storage import LocalGlobalStorage
from milestones.common.state.manifest import StoreManifest, TaskManifest, unreadable_stores
from milestones.common.state.spec import StoreSpec
from milestones.common.state.task_storage import ROCKSDB, LocalTaskStorage

log: Final = logging.getLogger(__name__)

S = TypeVar("S", bound=LocalTaskStorage)


class LocalStateManager:
    """A `StateManager` that opens stores in the instance's state directory, each with an engine from `engines`.

    `stage` and `static_id` (`group_instance_id`) are written into the manifests.
    """

    directory: StateDirectory
    engines: Engines
    stage: str
    static_id: str | None

    def __init__(self, directory: StateDirectory, engines: Engines, stage: str, static_id: str | None = None) -> None:
        self.directory, self.engines = directory, engines
        self.stage, self.static_id = stage, static_id
        self._open: weakref.WeakSet[LocalTaskStorage] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._checkpoints = Checkpoints(directory.task_path, _tasks_in(directory))

    def open(
        self, task: TaskId, specs: Sequence[StoreSpec], transactional_id: str | None = None, owner: str | None = None
    ) -> LocalTaskStorage:
        """Open a task's stores. If none of them is persistent, nothing is written to disk."""
        return self._opened(LocalTaskStorage, task, specs, transactional_id, owner)

    def open_global(self, specs: Sequence[StoreSpec]) -> LocalGlobalStorage:
        return self._opened(LocalGlobalStorage, GLOBAL, specs)

    def _opened(
        self, kind: type[S], task: TaskId, specs: Sequence[StoreSpec], id: str | None = None, owner: str | None = None
    ) -> S:
        persistent = [spec for spec in specs if spec.persistent]
        held = self.directory.lock(task, on_disk=bool(persistent), owner=owner)
        storage = kind(held, self.engines, self.directory.clock, self._checkpoints)
        try:
            if persistent:
                storage.manifest = self._agree(held, persistent, id)
            for spec in specs:
                storage.open(spec)
            storage.complete = True
        except BaseException:
            storage.close()
            raise
        with self._lock:
            self._open.add(storage)
        return storage

    def statistics(self) -> dict[tuple[TaskId, str], Mapping[str, int]]:
        with self._lock:
            open_now = list(self._open)
        return {(task.task, store): known for task in open_now for store, known in task.statistics().items()}

    def memory(self) -> EngineMemory:
        with self._lock:
            open_now = list(self._open)
        return summed([self.engines.memory(), *(task.memory() for task in open_now)])

    def closed_offsets(self, opening: Collection[TaskId] = ()) -> dict[TaskId, Mapping[str, int]]:
        """Return the offsets in the tasks' checkpoint files, without those of open tasks. A task whose stores are being
        opened or closed isn't open."""
        with self._lock:
            open_now = {storage.task for storage in self._open if storage.complete}.difference(opening)
        known = self._checkpoints.known().items()
        return {task: offsets for task, offsets in known if task not in open_now and task != GLOBAL}

    def remove(self, task: TaskId) -> None:
        self.directory.remove(task)
        self._checkpoints.remove(task)

    def clean(self, now_ms: int, delay_ms: int) -> bool:
        removed = remove_unused(self.directory, now_ms, delay_ms)
        for task in removed:
            self._checkpoints.remove(task)
        return bool(removed)

    def release(self) -> None:
        self.directory.close()

    def _agree(self, held: TaskDirectory, specs: Sequence[StoreSpec], transactional_id: str | None) -> TaskManifest:
        """Read the task's manifest, check that its stores fit the topology, and write the new manifest. The caller
        opens the stores after that."""
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
        self._checkpoints.add(held.task)
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
        kinds = {spec.name: spec.kind for spec in specs}
        for store in unreadable_stores(written, specs, path, self.engines.name):
            log.warning(
                "store %r in %s was written by the engine %r as %s, now %r is to read it as %s, or with another "
                "retention or emit: it is restored from its changelog",
                store, path, written.stores[store].engine, written.stores[store].kind, self.engines.name, kinds[store],
            )  # fmt: skip
            self._checkpoints.forget(held.task)
            # The files are removed before the new manifest is written, so that a start after a crash removes the rest.
            remove_tree(path / ROCKSDB / store)
        return dict(written.stores)


def _tasks_in(directory: StateDirectory) -> list[TaskId]:
    """List the tasks that have state on the disk. A directory that can't be read is only a warning here; it is an error
    when a task is opened in it."""
    try:
        return directory.tasks()
    except StateError as error:
        log.warning("the state on this disk can't be reported to the group: %s", error)
        return []
