"""The two layouts of an instance's state, and the ways between them.

| | layout | of |
|---|---|---|
| folders | `<task>/rocksdb/<store>/`, `<task>/manifest.json` | stages before m6 |
| ranges | `engines/<sub-topology>/` | m6 |

An instance converts what it finds of the other layout when it starts, before it joins the group, task by task. Entries
go as sorted table files, which the database links; helper processes write them (`helpers.py`) where there
is much to take in.

*Guarantees*: nothing is deleted before the new place is durable. A conversion that breaks off is begun again with the
task that it was at. Where both layouts have a task, both have the same: no task is opened before its
conversion has ended. The files of a damaged store are set aside, with an error in the log, and
it is restored; any other error, such as of a full disk, ends the start, with all in its place.
*Assumes*: the instance's directory is locked, and no task of it is open.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from milestones.common.errors import StateCorruptError, StateFormatError
from milestones.common.records import TaskId
from milestones.common.state.directory import DATABASES
from milestones.common.state.disk import TRASH, make_directory, names, remove_tree, scratch
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.manifest import FOLDERS, StoreManifest, TaskManifest
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.task_storage import ROCKSDB
from milestones.common.testing.faults import reach
from milestones.m6_state_manager.mending.database_folder import CORRUPT, engine_of, set_aside
from milestones.m6_state_manager.range_row import RangeRow
from milestones.m6_state_manager.ranges import BYTES, prefix_of, span_of
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine, opened

if TYPE_CHECKING:
    from milestones.common.state.directory import StateDirectory
    from milestones.common.state.engine import Engines

log: Final = logging.getLogger(__name__)

INCOMING: Final = f"{TRASH}converting"
"""Where a task's table files lie until they are taken in; gone after a crash, with the next start of either layout."""

Entries = Iterator[tuple[bytes, bytes]]


class FolderJob(NamedTuple):
    """A store in a folder of its own, whose entries become table files in `target`, with `prefix` before each key.
    `engine`: by its name."""

    folder: Path
    engine: str
    prefix: bytes
    target: Path


class StoreFiles(NamedTuple):
    """What a `FolderJob` has made: the number of entries by file. `offset`: the store's."""

    files: Mapping[Path, int]
    offset: int | None


def folders(directory: StateDirectory) -> list[TaskId]:
    """The tasks that have stores in folders of their own."""
    return [task for task in directory.tasks() if names(directory.task_path(task) / ROCKSDB)]


# -- into ranges


def jobs(directory: StateDirectory, task: TaskId, database: Path) -> list[FolderJob]:
    """What has to be read for a task to be taken into that database; nothing of a task that isn't ours."""
    path = directory.task_path(task)
    manifest = TaskManifest.read(path)
    stores = {} if manifest is None else manifest.stores
    return [_job(path, *store, database, task) for store in stores.items() if _folder(path, store[0]) is not None]


def _job(path: Path, store: str, written: StoreManifest, database: Path, task: TaskId) -> FolderJob:
    target = database / INCOMING / str(task.partition) / store
    return FolderJob(path / ROCKSDB / store, written.engine, prefix_of(task.partition), target)


def _folder(path: Path, store: str) -> Path | None:
    """The store's, where it has one."""
    folder = path / ROCKSDB / store
    return folder if (folder / "CURRENT").exists() else None


def store_files(job: FolderJob) -> StoreFiles:
    """Write the table files. `StateError`."""
    engine = open_engines(job.engine).open(job.folder)
    try:
        namespace, prefix = engine.open(job.folder.name), job.prefix
        found = namespace.scan(None, None)
        return StoreFiles(_table_files(job.target, ((prefix + key, value) for key, value in found)), namespace.offset())
    finally:
        engine.close()


def take_in(
    directory: StateDirectory,
    task: TaskId,
    database: SubtopologyEngine,
    made: Callable[[FolderJob], StoreFiles] | None = None,
) -> None:
    """Take a task's stores into its range, and remove its folder. `made`: the files of one of `jobs`, where another
    thread has them written. `StateError`."""
    path, began = directory.task_path(task), time.monotonic()
    manifest = TaskManifest.read(path)
    if manifest is None or manifest.application_id != directory.path.name or manifest.task != str(task):
        raise StateFormatError(
            f"{path} holds stores, and no manifest of task {task} of {directory.path.name!r}: they aren't ours; choose "
            f"another state_dir, or remove {path}"
        )
    if task.partition not in database.rows:
        _begin(database, task, manifest)
        reach("conversion.begun")
        offsets, births, count = dict[str, int](), dict[str, str](), 0
        for store, written in manifest.stores.items():
            try:
                offset, taken = _take_store(path, store, written, database, task, made or store_files)
            except (StateCorruptError, StateFormatError) as error:
                kept = set_aside(path / ROCKSDB / store, database.path.with_name(f"{task}-{store}-{CORRUPT}"))
                log.error(
                    "store %r of task %s isn't taken over, its files are kept in %s: %s", store, task, kept, error
                )
                continue
            reach("conversion.store")
            count += taken
            births[store] = uuid.uuid4().hex
            if offset is not None:
                offsets[store] = offset
        ids = {name: store.changelog_id for name, store in manifest.stores.items() if store.changelog_id is not None}
        row = RangeRow(
            offsets, ids, births, process_id=manifest.process_id, transactional_id=manifest.transactional_id
        )
        database.write(task.partition, {}, row)
        database.sync()
        reach("conversion.row")
        log.info("task %s: %d entries were taken over in %.1f s", task, count, time.monotonic() - began)
    remove_tree(path)


def _begin(database: SubtopologyEngine, task: TaskId, manifest: TaskManifest) -> None:
    """Note the kinds of the stores, and empty what an earlier try has left in the range."""
    known = TaskManifest.read(database.path)
    engine = database.engine_name
    stores = {name: replace(store, engine=engine, changelog_id=None) for name, store in manifest.stores.items()}
    if known is None:
        known = replace(manifest, task=database.path.name, transactional_id=None, stores={})
    database.manifest = replace(known, stores={**stores, **known.stores})
    database.manifest.write(database.path)
    database.wipe(task.partition, list(manifest.stores), None)


def _take_store(
    path: Path,
    store: str,
    written: StoreManifest,
    database: SubtopologyEngine,
    task: TaskId,
    made: Callable[[FolderJob], StoreFiles],
) -> tuple[int | None, int]:
    """Take one store in: its offset, and how many entries it has. `StateError`."""
    if _folder(path, store) is None:
        return None, 0
    own = TaskManifest.read(database.path)
    if own is not None and not _same(own.stores[store], written):
        raise StateFormatError(f"it was written as {written.kind}, {own.stores[store].kind} by other tasks")
    job = _job(path, store, written, database.path, task)
    files, offset = made(job)
    reach("conversion.written")
    database.open_store(store)
    for _ in database.engine.ingest(store, list(files)):
        pass
    remove_tree(job.target)
    return offset, sum(files.values())


def _same(one: StoreManifest, other: StoreManifest) -> bool:
    return (one.kind, one.layout, one.arrangement) == (other.kind, other.layout, other.arrangement)


def _table_files(directory: Path, entries: Entries) -> Mapping[Path, int]:
    remove_tree(directory)
    make_directory(directory)
    writer = SstWriter(directory)
    writer.write(entries)
    return writer.files


# -- into folders


def folder_state_manager(
    directory: StateDirectory, engines: Engines, stage: str, static_id: str | None = None
) -> LocalStateManager:
    """The state manager of the stages before m6, once what m6 has left is in folders. `StateError`."""
    path = directory.path / DATABASES
    for name in names(path):
        if name.isdigit():
            engine = engine_of(path / name)
            database = opened(int(name), path / name, engines if engine is None else open_engines(engine))
            try:
                for partition in sorted(database.rows):
                    give_out(directory, TaskId(database.number, partition), database)
            finally:
                database.close()
            reach("conversion.emptied")
            remove_tree(path / name)
    directory.write_layout(FOLDERS)
    return LocalStateManager(directory, engines, stage, static_id)


def give_out(directory: StateDirectory, task: TaskId, database: SubtopologyEngine) -> None:
    """Give a task's range out into a folder of its own, and remove its row. `StateError`."""
    target, began = directory.task_path(task), time.monotonic()
    if TaskManifest.read(target) is None:
        row, known = database.rows[task.partition], TaskManifest.read(database.path)
        assert known is not None  # written before any row
        working = scratch(directory.path)
        count = 0
        for store in database.stores():
            if store in row.births:
                count += _give_store(working, store, database, task, row.offsets.get(store))
        stores = {
            name: replace(store, changelog_id=row.changelog_ids.get(name))
            for name, store in known.stores.items()
            if name in row.births
        }
        manifest = replace(known, task=str(task), transactional_id=row.transactional_id, stores=stores)
        manifest.write(working)
        remove_tree(target)
        reach("conversion.given")
        working.rename(target)
        log.info("task %s: %d entries were given out in %.1f s", task, count, time.monotonic() - began)
    reach("conversion.folder")
    database.wipe(task.partition, database.stores(), None)
    database.sync()


def _give_store(
    working: Path, store: str, database: SubtopologyEngine, task: TaskId, offset: int | None
) -> int:
    """Give one store out; how many entries it has. `StateError`."""
    first, beyond = span_of(task.partition)
    found = database.open_store(store).scan(first, beyond)
    files = _table_files(working / INCOMING, ((key[BYTES:], value) for key, value in found))
    make_directory(working / ROCKSDB / store)
    engine = open_engines(database.engine_name).open(working / ROCKSDB / store)
    try:
        engine.open(store)
        for _ in engine.ingest(store, list(files)):
            pass
        engine.apply({store: {}}, {} if offset is None else {store: offset})
        engine.sync()
    finally:
        engine.close()
    remove_tree(working / INCOMING)
    return sum(files.values())
