"""`RangeStateManager` owns all state of an instance: a database per sub-topology, with a range of keys per task.

    open(task) -> lock in the table -> database of the sub-topology (opened once) -> column families -> ranges
    close      -> the lock is free; nothing happens on the disk
    clean      -> unused ranges are emptied, and stores that the topology hasn't had for long are removed

*Guarantees*: a task is open for one owner at a time. A database that is too damaged to be opened is set aside, and its
stores are restored. A store whose kind or form has changed is refused, or restored, before any of its rows is read.
*Assumes*: the instance's directory is locked. Any thread may call. `open`, `clean` and `remove` share a lock, as they
may use the disk; no other call takes it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from milestones.common.errors import (
    StateBusyError,
    StateCorruptError,
    StateError,
    StateFormatError,
    StateFullError,
    StateLockedError,
)
from milestones.common.records import StoreId, TaskId
from milestones.common.state.directory import DATABASES
from milestones.common.state.disk import names, some
from milestones.common.state.engine import EngineMemory, summed
from milestones.common.state.manifest import RANGES, StoreManifest, TaskManifest, unreadable_stores
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.unused_times import name_of_store
from milestones.m6_state_manager.conversion.all_tasks import take_all_in
from milestones.m6_state_manager.conversion.layouts import Convert, take_in
from milestones.m6_state_manager.disk_room import DiskRoom
from milestones.m6_state_manager.former_stores import former_stores, remove_former
from milestones.m6_state_manager.mending.database_folder import engine_of, set_aside
from milestones.m6_state_manager.mending.kept_files import remove_old
from milestones.m6_state_manager.mending.mender import Mending
from milestones.m6_state_manager.ranges import prefix_of
from milestones.m6_state_manager.snapshots.changed_keys import ChangedKeys
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine, opened
from milestones.m6_state_manager.task_storage import RangeTaskStorage

if TYPE_CHECKING:
    from pathlib import Path

    from milestones.common.state.directory import StateDirectory
    from milestones.common.state.engine import Engines
    from milestones.common.state.global_storage import LocalGlobalStorage
    from milestones.common.state.spec import StoreSpec

log: Final = logging.getLogger(__name__)


class RangeStateManager:
    """See `StateManager`. *Owns*: the databases, by sub-topology; the table of open tasks."""

    def __init__(
        self,
        directory: StateDirectory,
        engines: Engines,
        stage: str,
        static_id: str | None = None,
        weights: Mapping[int, int] | None = None,
    ) -> None:
        """`weights`: `task_priorities`. Folders of an earlier stage are converted in the order of these priorities."""
        self.directory, self.stage, self._static_id = directory, stage, static_id
        self.engines: Engines = engines.for_many_tasks()
        self._others = LocalStateManager(directory, engines, stage, static_id)
        self._opening = threading.Lock()
        self._databases: dict[int, SubtopologyEngine] = {}
        self._open: dict[TaskId, RangeTaskStorage] = {}
        self.changed = ChangedKeys()
        self.room: DiskRoom = DiskRoom()
        self.tell_damage: Callable[[], object] = lambda: None
        """Called by any thread that finds a database damaged."""
        self._path = directory.path / DATABASES
        directory.write_layout(RANGES)
        try:
            self._begin(weights or {})
        except BaseException:
            with ExitStack() as stack:
                for database in self._databases.values():
                    stack.callback(database.close)
            raise

    def _begin(self, weights: Mapping[int, int]) -> None:
        """Open the databases on disk, and convert folders of an earlier stage. If a database can't be opened now, its
        tasks try once more when they are opened. If that fails, too, only these tasks end."""
        for name in names(self._path):
            if name.isdigit():
                self._begin_with(int(name))
        take_all_in(self.directory, lambda task: self._database(task.subtopology), self._take_in, weights)

    def _begin_with(self, number: int) -> None:
        try:
            if not self._is_foreign(number):
                self._database(number)
        except (StateFormatError, StateLockedError):
            raise
        except StateFullError as error:
            log.warning("the state of sub-topology %d waits for room on its disk: %s", number, error)
        except StateError as error:
            log.error("sub-topology %d begins without its state: %s", number, error)

    def _take_in(self, task: TaskId, convert: Convert) -> None:
        database = self._database(task.subtopology)
        try:
            take_in(self.directory, task, database, convert)
        except StateBusyError:
            if not database.gate.reason:
                raise
            Mending(database, self.engines).run()
            take_in(self.directory, task, database)  # converted here: files that helper processes have made may be gone

    # -- databases

    def _database(self, number: int, stores: Collection[str] = ()) -> SubtopologyEngine:
        """Return the database of a sub-topology, and open it if it is closed. `stores`: a new database begins with
        these."""
        database = self._databases.get(number)
        if database is None:
            path = self._path / str(number)
            if self._is_foreign(number):
                kept = set_aside(path, path.with_name(f"{path.name}-{engine_of(path)}"))
                log.warning(
                    "the state of sub-topology %d was written by another rocksdb_engine, and is restored from the "
                    "changelogs; its files are kept in %s", number, kept,
                )  # fmt: skip
            database = self._databases[number] = opened(number, path, self.engines, self.changed, stores)
            database.tell_damage, database.room = self._tell_damage, self.room
        return database

    def _tell_damage(self) -> None:
        self.tell_damage()

    def _is_foreign(self, number: int) -> bool:
        """Return whether the sub-topology's database was written by another `rocksdb_engine`."""
        return number not in self._databases and engine_of(self._path / str(number)) not in (None, self.engines.name)

    def _agree(self, database: SubtopologyEngine, specs: Sequence[StoreSpec]) -> None:
        """Check the stores against the kinds that the manifest has, and write the manifest, before a store is
        opened."""
        if database.agreed is not None and list(specs) == list(database.agreed):
            return
        path, name = database.path, self.engines.name
        written = TaskManifest.read(path)
        known = {} if written is None else dict(written.stores)
        if written is not None:
            for store in unreadable_stores(written, specs, path, name):
                log.warning("store %r in %s is in another form now, and restored from its changelog", store, path)
                database.drop_store(store)
        for store in {spec.name for spec in specs}.difference(database.stores()):
            database.forget_offsets(store)  # offsets from before the store was removed
        manifest = TaskManifest(
            application_id=self.directory.path.name,
            task=path.name,
            stage=self.stage,
            process_id=self.directory.process_id,
            static_id=self._static_id,
            stores={**known, **{spec.name: StoreManifest.of(spec, name) for spec in specs}},
        )
        if manifest != written:
            manifest.write(path)
        database.agreed, database.manifest = specs, manifest
        self.directory.unused.forget(name_of_store(database.number, spec.name) for spec in specs)

    # -- tasks

    def open(
        self, task: TaskId, specs: Sequence[StoreSpec], transactional_id: str | None = None, owner: str | None = None
    ) -> RangeTaskStorage:
        prefix_of(task.partition)
        held = self.directory.lock(task, on_disk=False, owner=owner)
        try:
            persistent = [spec for spec in specs if spec.persistent]
            writer = {"process_id": self.directory.process_id, "transactional_id": transactional_id}
            with self._opening:
                database = self._with_stores(task, persistent)
                storage = RangeTaskStorage(task, database, specs, writer, partial(self._close, task, held))
                self._open[task] = storage
        except BaseException as error:
            self._leave(task)
            held.unlock()
            if isinstance(error, StateError) and self._passes(error, self._path / str(task.subtopology)):
                raise StateLockedError(f"the stores of task {task} can't be opened now: {error}") from error
            raise
        return storage

    def _passes(self, error: StateError, path: Path) -> bool:
        """Return whether the stores can be opened later: once their database is mended, or once its disk has room."""
        if isinstance(error, StateFullError):
            self.room.refused(path, waits=False)
        elif isinstance(error, StateFormatError | StateLockedError):
            return False
        return isinstance(error, StateBusyError | StateCorruptError) or self.room.is_full(path)

    def _with_stores(self, task: TaskId, specs: Sequence[StoreSpec]) -> SubtopologyEngine | None:
        """Return the database with these stores of the task; None if the task has no persistent store."""
        if not specs:
            if task.subtopology in self._databases:
                self._databases[task.subtopology].agreed = ()
            return None
        if self._is_foreign(task.subtopology):
            path = self._path / str(task.subtopology)
            written = TaskManifest.read(path)
            assert written is not None  # the engine's name was read from it
            unreadable_stores(written, specs, path, self.engines.name)
        database = self._database(task.subtopology, [spec.name for spec in specs])
        with database.gate.passed():  # raises while the database is being mended
            pass
        self._agree(database, specs)
        for spec in specs:
            database.owners.setdefault(spec.name, set()).add(StoreId(task, spec.name))
        return database

    def _close(self, task: TaskId, held: Any) -> None:
        """Free the lock of the task."""
        self._leave(task)
        held.unlock()

    def _leave(self, task: TaskId) -> None:
        self._open.pop(task, None)
        database = self._databases.get(task.subtopology)
        if database is not None:
            for store, owners in list(database.owners.items()):
                owners.discard(StoreId(task, store))  # atomic, as other threads open and close tasks at the same time

    def open_global(self, specs: Sequence[StoreSpec]) -> LocalGlobalStorage:
        return self._others.open_global(specs)

    # -- what the databases have

    def closed_offsets(self, opening: Collection[TaskId] = ()) -> dict[TaskId, Mapping[str, int]]:
        open_now = self._open.keys() - set(opening)
        return {
            task: row.offsets
            for database in list(self._databases.values())
            for partition, row in list(database.rows.items())
            if (task := TaskId(database.number, partition)) not in open_now
        }

    def statistics(self) -> dict[tuple[TaskId | int, str], Mapping[str, int]]:
        """Return `Engine.statistics` of each database by the number of its sub-topology. The store is named "all", as
        all stores of a sub-topology share a database."""
        found: dict[tuple[TaskId | int, str], Mapping[str, int]] = {}
        for number, database in list(self._databases.items()):
            try:
                found[number, "all"] = database.engine.statistics()
            except StateError:
                continue  # closed in the meantime; or broken, and a task will report that
        return found | self._others.statistics()

    def memory(self) -> EngineMemory:
        found = [EngineMemory(changed_keys=self.changed.bytes), self._others.memory()]
        for database in list(self._databases.values()):
            with suppress(StateError):  # closed in the meantime; or broken, and a task will report that
                found.append(database.engine.memory())
        return summed([*found, *(task.memory() for task in list(self._open.values()))])

    def databases(self) -> list[SubtopologyEngine]:
        """Return all open databases, for the state thread."""
        return list(self._databases.values())

    def unopened(self) -> list[int]:
        """Return the sub-topologies whose database can't be opened, as its disk is full."""
        return [int(path.name) for path in self.room.full() if int(path.name) not in self._databases]

    def tasks(self, subtopology: int) -> list[RangeTaskStorage]:
        """Return the storages of a sub-topology's open tasks."""
        return [storage for task, storage in sorted(self._open.items()) if task.subtopology == subtopology]

    # -- the end of state

    def clean(self, now_ms: int, delay_ms: int) -> bool:
        removed = self._others.clean(now_ms, delay_ms)
        locked = self.directory.locked()
        for database in self.databases():
            removed = self._remove_former(database, now_ms - delay_ms) or removed
            for partition in list(database.rows):
                task = TaskId(database.number, partition)
                idle_ms = now_ms - self.directory.idle_since(task)
                if task not in locked and idle_ms >= delay_ms:
                    removed = self._clean(task, idle_ms) or removed
        return remove_old(self.databases(), now_ms) or removed

    def _clean(self, task: TaskId, idle_ms: int) -> bool:
        try:
            self.remove(task)
        except StateLockedError:
            return False
        except StateError as error:
            log.warning("state of task %s, unused for %d ms, can't be removed: %s", task, idle_ms, error)
            return False
        log.info("removed the state of task %s, unused for %d ms", task, idle_ms)
        return True

    def _remove_former(self, database: SubtopologyEngine, until_ms: int) -> bool:
        """Remove stores that the topology hasn't had since `until_ms`, unless no changelog could restore them. Returns
        True if a store was removed."""
        unused = self.directory.unused
        with self._opening:
            names = {store: name_of_store(database.number, store) for store in former_stores(database)}
            former = [store for store, name in names.items() if unused.since(name) <= until_ms]
            try:
                for store in former:
                    remove_former(database, store)
                    unused.forget([names[store]])
            except StateError as error:
                log.warning("stores %s, which the topology doesn't have, can't be removed: %s", some(former), error)
                return False
        if former:
            log.info("removed from sub-topology %d what the topology doesn't have: %s", database.number, some(former))
        return bool(former)

    def remove(self, task: TaskId) -> None:
        database = self._databases.get(task.subtopology)
        if database is not None and task.partition in database.rows:
            held = self.directory.lock(task, on_disk=False, owner="the cleaner", uses=False)
            try:
                with self._opening:
                    database.wipe(task.partition, database.stores(), None, wait=False)
            except StateBusyError as busy:
                raise StateLockedError(str(busy)) from busy
            finally:
                held.unlock()
        self._others.remove(task)

    def release(self) -> None:
        for storage in list(self._open.values()):
            log.error("the state manager ends while task %s is still open: it was not closed", storage.task)
        with ExitStack() as stack:  # if one can't be released, the others still are
            stack.callback(self._others.release)
            for database in self._databases.values():
                stack.callback(self._end, database)
        self._databases = {}

    @staticmethod
    def _end(database: SubtopologyEngine) -> None:
        try:
            database.sync()
        except StateError as error:
            log.warning("the writes of sub-topology %d can't be synced: %s", database.number, error)
        finally:
            database.close()
