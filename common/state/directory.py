"""The state directory of one application instance: its identity, its tasks' directories and their locks.

    <state_dir>/<application_id>/
        .lock               held while the instance lives
        process             the instance's identity (`InstanceManifest`)
        unused.json         for how long old state hasn't been used (`UnusedTimes`)
        <task>/             0_1, ...
            .lock           held while the task's stores are open
            manifest.json   what the stores are (`TaskManifest`)
            positions.json  a hint of their offsets (`checkpoint_file`)
            rocksdb/<store>/
            corrupt/        the last damaged store, set aside
        global/             the instance's global stores, as a task's
        engines/            from m6 on all tasks' stores, in place of the tasks' directories

As in Kafka Streams, a state directory belongs to one process at a time.

*Guarantees*: only one holder at a time, of all threads and processes, can have a task's lock. No method waits for a
lock, and the error of a refusal names the holder. A task's directory is removed in one step.
*Assumes*: a thread that writes below a task's directory holds the task's lock. Any thread may call the methods. The
table of holders has its own lock, which isn't held during I/O. The identity has another lock, which is held while the
file `process` is written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import StateError, StateFormatError, StateLockedError
from milestones.common.records import GLOBAL, TaskId
from milestones.common.state.disk import (
    delete_left,
    exists,
    is_plain_name,
    make_directory,
    names,
    remove_tree,
    some,
    sweep,
)
from milestones.common.state.file_lock import FileLock
from milestones.common.state.manifest import PROCESS_FILE, InstanceManifest
from milestones.common.state.unused_times import UNUSED_FILE, UnusedTimes

log: Final = logging.getLogger(__name__)

LOCK_FILE = ".lock"
DATABASES: Final = "engines"

_OTHER_INSTANCE = "stop that one, or give each instance a state_dir of its own"
_OTHER_TASK_HOLDER = "the task is opened again once that one has closed it"


class TaskDirectory:
    """A task directory that is locked until `unlock`. `path` exists only if the task was locked for stores on disk."""

    def __init__(self, directory: StateDirectory, task: TaskId, lock: FileLock | None) -> None:
        self.task = task
        self.path: Path = directory.task_path(task)
        self._directory, self._lock = directory, lock

    def unlock(self) -> None:
        """Free the task's lock. A second call does nothing."""
        if self._lock is not None:
            self._lock.release()
        self._directory.release(self)


class StateDirectory:
    """The locked state directory of an instance, with its tasks' locks. `process_id` is the instance's UUID, which is
    the same after each restart on the same directory."""

    def __init__(self, state_dir: str | Path, application_id: str, clock: Clock | None = None) -> None:
        """Create and lock the directory.

        Raises `StateLockedError`, which names the process that holds the directory. Raises `StateFormatError` if the
        directory belongs to another program. Raises `StateError`, which says what to do about the disk."""
        if not is_plain_name(application_id):
            raise StateError(f"application_id {application_id!r} can't be the name of a directory below {state_dir}")
        self.path: Path = Path(state_dir).absolute() / application_id
        self.clock: Clock | SystemClock = clock or SystemClock()
        self._guard, self._identity_lock = threading.Lock(), threading.Lock()
        self._holders: dict[TaskId, tuple[TaskDirectory, str]] = {}
        make_directory(self.path)
        self._lock = FileLock(self.path / LOCK_FILE, "an instance of the application", _OTHER_INSTANCE)
        try:
            sweep(self.path)
            sweep(self.path / DATABASES)
            self._manifest = self._identify(application_id)
        except BaseException:
            self._lock.release()
            raise
        self._opened_ms = self.clock.wall_ms()
        self._opened_at = self.clock.monotonic_ms()
        self.unused: UnusedTimes = UnusedTimes(self.path, self.now_ms)

    def _identify(self, application_id: str) -> InstanceManifest:
        manifest = InstanceManifest.read(self.path)
        if manifest is None:
            self._refuse_foreign()
            manifest = InstanceManifest.new(application_id)
            manifest.write(self.path)
        if manifest.application_id != application_id:
            raise StateFormatError(
                f"{self.path} holds the state of application {manifest.application_id!r}, not of {application_id!r}: "
                "choose another state_dir, or move it back to where it was"
            )
        return manifest

    def _refuse_foreign(self) -> None:
        own = LOCK_FILE, UNUSED_FILE, str(GLOBAL), DATABASES
        foreign = [name for name in names(self.path) if name not in own and _task(name) is None]
        if foreign:
            raise StateFormatError(
                f"{self.path} has no file {PROCESS_FILE!r} but holds {some(foreign)}, which isn't ours: choose "
                "another state_dir, or move that away"
            )

    # -- the instance

    @property
    def process_id(self) -> str:
        return self._manifest.process_id

    @property
    def transactional_ids(self) -> frozenset[str]:
        """Every transactional id that this process or an earlier one has recorded, and that wasn't forgotten since."""
        return self._manifest.transactional_ids

    @property
    def static_ids(self) -> frozenset[str]:
        """Every static id that this process or an earlier one has recorded, and that wasn't forgotten since."""
        return self._manifest.static_ids

    @property
    def source_ids(self) -> Mapping[str, str]:
        """Kafka's ids of source topics, as the last `record_sources` has written them."""
        return self._manifest.source_ids

    def record_sources(self, ids: Mapping[str, str]) -> None:
        """Write Kafka's ids of the source topics into the file `process`."""
        with self._identity_lock:
            self._write(source_ids=dict(ids))

    @property
    def internal_ids(self) -> Mapping[str, str]:
        """Kafka's ids of the application's own topics, as the last `record_internal` has written them."""
        return self._manifest.internal_ids

    def record_internal(self, ids: Mapping[str, str]) -> None:
        """Write Kafka's ids of the application's own topics into the file `process`."""
        with self._identity_lock:
            self._write(internal_ids=dict(ids))

    def record_ids(self, *, transactional: Set[str] = frozenset(), static: Set[str] = frozenset()) -> None:
        """Write ids into the file `process`, with an fsync. A transactional id is recorded before its first
        transaction, a static id before its member first joins the group."""
        with self._identity_lock:
            known = self._manifest
            self._write(
                transactional_ids=known.transactional_ids | transactional, static_ids=known.static_ids | static
            )

    def forget_ids(self, *, transactional: Set[str] = frozenset(), static: Set[str] = frozenset()) -> None:
        """Remove ids from the file `process`.

        A transactional id is forgotten once it is obsolete and a producer has initialised it: then no transaction can
        be open under it. A static id is forgotten once its member has left the group."""
        with self._identity_lock:
            known = self._manifest
            self._write(
                transactional_ids=known.transactional_ids - transactional, static_ids=known.static_ids - static
            )

    def _write(self, **fields: Any) -> None:
        """Write the manifest with these fields, if one of them changes. Called under the lock.

        The file is written before the manifest in memory changes. So if the write fails, the next call tries it once
        more."""
        manifest = replace(self._manifest, **fields)
        if manifest != self._manifest:
            manifest.write(self.path)
            self._manifest = manifest

    def write_layout(self, layout: str) -> None:
        """Write the layout of the tasks' stores (a key of `manifest.LAYOUTS`) into the file `process`."""
        with self._identity_lock:
            self._write(layout=layout)

    # -- tasks

    def task_path(self, task: TaskId) -> Path:
        return self.path / str(task)

    def tasks(self) -> list[TaskId]:
        """List the tasks that have state on this disk, sorted."""
        found = [task for name in names(self.path) if (task := _task(name)) is not None]
        return sorted(task for task in found if set(names(self.task_path(task))) - {LOCK_FILE})

    def locked(self) -> dict[TaskId, str]:
        """Return the tasks that are locked in this process, each with its holder."""
        with self._guard:
            return {task: owner for task, (_, owner) in self._holders.items()}

    def lock(self, task: TaskId, *, on_disk: bool = True, owner: str | None = None, uses: bool = True) -> TaskDirectory:
        """Lock `task` for `owner` (None: the calling thread).

        `on_disk`: False creates no directory. `uses`: False doesn't count as a use of the state. A caller that removes
        the state gives False, so that the state is as old as before if the removal fails.

        Raises `StateLockedError` without waiting if any holder has the lock. Raises `StateError`.
        """
        owner = owner or f"thread {threading.current_thread().name}"
        held = TaskDirectory(self, task, None)
        with self._guard:
            if task in self._holders:
                raise StateLockedError(
                    f"task {task} in {self.path} is held by {self._holders[task][1]}; {_OTHER_TASK_HOLDER}"
                )
            self._holders[task] = (held, owner)
        try:
            if on_disk:
                make_directory(held.path)
                held._lock = FileLock(held.path / LOCK_FILE, owner, _OTHER_TASK_HOLDER)
                sweep(held.path)
            if uses:
                self.unused.begin_use(str(task))
        except BaseException:
            held.unlock()
            raise
        return held

    def release(self, held: TaskDirectory) -> None:
        """Take a task out of the table of holders. `TaskDirectory.unlock` calls this."""
        with self._guard:
            if self._holders.get(held.task, (None,))[0] is held:
                del self._holders[held.task]
                self.unused.end_use(str(held.task))

    def now_ms(self) -> int:
        """Return the wall clock's time at which this object was made, plus the monotonic time that has passed since.

        The result doesn't jump when the machine's clock is set. Otherwise the state of a task that was just closed
        might count as old."""
        return self._opened_ms + self.clock.monotonic_ms() - self._opened_at

    @property
    def opened_ms(self) -> int:
        """The wall clock's time (ms) at which this object was made."""
        return self._opened_ms

    def idle_since(self, task: TaskId) -> int:
        """Return the time (of `now_ms`) since when no thread has held `task`: see `UnusedTimes.since`."""
        return self.unused.since(str(task))

    def remove(self, task: TaskId, *, owner: str | None = None) -> None:
        """Delete the state of `task`.

        Raises `StateLockedError` while the task is open. Raises `StateError` if the state couldn't be removed, and is
        there as before. If the state is removed but the disk doesn't delete some of its files, a warning is logged, and
        `delete_left` deletes them later."""
        held = self.lock(task, owner=owner, uses=False)
        try:
            remove_tree(held.path)
        except StateError as error:
            if exists(held.path):
                raise
            log.warning("the state of task %s is removed, but some of its files are still on the disk: %s", task, error)
        finally:
            held.unlock()
        self.unused.forget([str(task)])

    def clear(self) -> None:
        """Delete the state of all tasks and of the global stores. The instance keeps its identity.

        Raises `StateLockedError` at the first task that is open. The tasks before it are already deleted then. Raises
        `StateError` if files are left."""
        for task in (*self.tasks(), GLOBAL):
            if exists(self.task_path(task)):
                self.remove(task)
        remove_tree(self.path / DATABASES)
        self.unused.forget_all()
        delete_left(self.path)

    def close(self) -> None:
        """Free the directory's lock. A task that is still held keeps its own lock. A second call does nothing."""
        for task, owner in self.locked().items():
            log.error("%s is unlocked while task %s is still held by %s: it wasn't closed", self.path, task, owner)
        if self._lock.held:
            self.unused.record()
        self._lock.release()


def _task(name: str) -> TaskId | None:
    try:
        return TaskId.parse(name)
    except ValueError:
        return None
