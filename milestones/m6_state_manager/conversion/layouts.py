"""The two layouts of an instance's state, and the conversion of one task in both directions.

| | layout | of |
|---|---|---|
| folders | `<task>/rocksdb/<store>/`, `<task>/manifest.json` | stages before m6 |
| ranges | `engines/<sub-topology>/` | m6 |

When an instance starts, before it joins the group, it converts the tasks that it finds in the other layout, one by one
(`all_tasks.py`). A *job* reads one store of a task in one layout, and writes files of the other layout. If there is
much to convert, helper processes do the jobs (`helpers.py`).

*Why this way*:
- Entries are written to sorted table files, which the database links. So nothing is written entry by entry.
- Reading a store and writing its table files takes most of the time, and holds Python's lock. Helper processes do this,
  one per core, up to four. This process links, syncs and removes.
- A task is converted before the next one, so that an interrupted start has to repeat one task only.

*Guarantees*: nothing is deleted before the new place is durable. A conversion that breaks off begins once more with the
task that it was converting. While a task is in both layouts, both have the same content, except stores that can't be
read: no task is opened before its conversion has ended. A store that can't be read isn't converted: an error is logged,
its files are set aside, and the store is restored. Any other error, such as a full disk, ends the start, and all files
stay where they are.
*Assumes*: the instance's directory is locked, and none of its tasks is open. No one writes a database that a job reads.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from milestones.common.errors import StateCorruptError, StateFormatError
from milestones.common.records import TaskId
from milestones.common.state.disk import TRASH, exists, explained, make_directory, names, remove_tree, sync_directory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.rocks import MIB, RocksSettings
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.manifest import StoreManifest, TaskManifest
from milestones.common.state.task_storage import ROCKSDB
from milestones.common.testing.faults import reach
from milestones.m6_state_manager.mending.database_folder import CORRUPT, engine_of, set_aside
from milestones.m6_state_manager.range_row import LOST, UNKNOWN, RangeRow
from milestones.m6_state_manager.ranges import BYTES, prefix_of, span_of
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine, opened

if TYPE_CHECKING:
    from milestones.common.state.directory import StateDirectory
    from milestones.common.state.engine import Engine, Engines

log: Final = logging.getLogger(__name__)

INCOMING: Final = f"{TRASH}converting"
"""The folder of a task's table files, until the database links them. After a crash the next start removes the folder,
whichever layout it has."""

Entries = Iterator[tuple[bytes, bytes]]
SETTINGS: Final = RocksSettings(block_cache_bytes=16 * MIB)
"""The settings for databases that are read once, from the beginning to the end."""


class FolderJob(NamedTuple):
    """Write the entries of a store, which has a folder of its own, to table files in `target`. `prefix` is put before
    each key. `engine`: the engine's name."""

    folder: Path
    engine: str
    prefix: bytes
    target: Path


class RangeJob(NamedTuple):
    """Write a store's range in the database in `database` to the folder `target`, with this changelog offset.
    `engine`: the engine's name."""

    database: Path
    engine: str
    store: str
    partition: int
    offset: int | None
    target: Path


Job = FolderJob | RangeJob


class Converted(NamedTuple):
    """The result of a job: the number of entries, the files that the database must link, and the store's offset."""

    entries: int
    files: Sequence[Path]
    offset: int | None


Convert = Callable[[Job], Converted]
"""Does a job. Raises `StateError`."""


class Converter:
    """Does jobs. *Owns*: the database of the last job, which stays open: the next job often reads the same one."""

    def __init__(self) -> None:
        self._open: tuple[Path, Engine] | None = None

    def convert(self, job: Job) -> Converted:
        """See `Convert`."""
        return self._write_files(job) if isinstance(job, FolderJob) else self._write_folder(job)

    def _write_files(self, job: FolderJob) -> Converted:
        engine, store = self._opened(job.folder, job.engine), job.folder.name
        try:
            if store not in engine.namespaces():  # the store was begun, and nothing was written yet
                return Converted(0, (), None)
            namespace, prefix = engine.open(store), job.prefix
            found = namespace.scan(None, None)
            files = _table_files(job.target, ((prefix + key, value) for key, value in found))
            return Converted(sum(files.values()), list(files), namespace.offset())
        finally:
            self.close()  # the folder is removed next

    def _write_folder(self, job: RangeJob) -> Converted:
        found = self._opened(job.database, job.engine).open(job.store).scan(*span_of(job.partition))
        remove_tree(job.target)
        incoming = job.target / INCOMING
        files = _table_files(incoming, ((key[BYTES:], value) for key, value in found))
        engine = open_engines(job.engine).open(job.target)
        try:
            engine.open(job.store)
            for _ in engine.ingest(job.store, list(files)):
                pass
            engine.apply({job.store: {}}, {} if job.offset is None else {job.store: job.offset})
            engine.sync()
        finally:
            engine.close()
        remove_tree(incoming)
        return Converted(sum(files.values()), (), job.offset)

    def _opened(self, path: Path, engine: str) -> Engine:
        """Open the database in `path`. If the library can, it is opened for reading only: then it replays no log, and
        begins no compactions."""
        if self._open is None or self._open[0] != path:
            self.close()
            self._open = path, open_engines(engine, SETTINGS, read_only=True).open(path)
        return self._open[1]

    def close(self) -> None:
        """Close the database. Harmless when repeated."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def at_once(job: Job) -> Converted:
    """Do one job, and leave no database open. See `Convert`."""
    converter = Converter()
    try:
        return converter.convert(job)
    finally:
        converter.close()


def folders(directory: StateDirectory) -> list[TaskId]:
    """Return the tasks that have stores in folders of their own."""
    return [task for task in directory.tasks() if names(directory.task_path(task) / ROCKSDB)]


# -- into ranges


def folder_jobs(directory: StateDirectory, task: TaskId, database: Path) -> list[FolderJob]:
    """Return the jobs that convert a task's folder to ranges of that database; none if the folder has no manifest."""
    path = directory.task_path(task)
    manifest = TaskManifest.read(path)
    stores = {} if manifest is None else manifest.stores
    return [_job(path, *store, database, task) for store in stores.items() if _folder(path, store[0]) is not None]


def _job(path: Path, store: str, written: StoreManifest, database: Path, task: TaskId) -> FolderJob:
    target = database / INCOMING / str(task.partition) / store
    return FolderJob(path / ROCKSDB / store, written.engine, prefix_of(task.partition), target)


def _folder(path: Path, store: str) -> Path | None:
    """Return the store's folder, if the store has one."""
    folder = path / ROCKSDB / store
    return folder if exists(folder / "CURRENT") else None


def take_in(
    directory: StateDirectory,
    task: TaskId,
    database: SubtopologyEngine,
    convert: Convert = at_once,
) -> None:
    """Convert a task's stores to its ranges, and remove its folder. `convert` does one of `folder_jobs`, or waits for
    its result. Raises `StateError`."""
    path, began = directory.task_path(task), time.monotonic()
    manifest = TaskManifest.read(path)
    if manifest is None or manifest.application_id != directory.path.name or manifest.task != str(task):
        raise StateFormatError(
            f"{path} holds stores, and no manifest of task {task} of {directory.path.name!r}: they belong to others; "
            f"choose another state_dir, or remove {path}"
        )
    if task.partition not in database.rows:
        _begin(database, task, manifest)
        reach("conversion.begun")
        offsets, births, count, commit = dict[str, int](), dict[str, str](), 0, UNKNOWN
        for store, written in manifest.stores.items():
            try:
                offset, taken = _take_store(path, store, written, database, task, convert)
            except (StateCorruptError, StateFormatError) as error:
                kept = set_aside(path / ROCKSDB / store, database.path.with_name(f"{task}-{store}-{CORRUPT}"))
                log.error(
                    "store %r of task %s can't be converted, its files are kept in %s: %s", store, task, kept, error
                )
                if written.changelog_id is None:  # the store follows no topic from which it could be restored
                    commit = LOST
                continue
            reach("conversion.store")
            count += taken
            births[store] = uuid.uuid4().hex
            if offset is not None:
                offsets[store] = offset
        ids = {name: store.changelog_id for name, store in manifest.stores.items() if store.changelog_id is not None}
        row = RangeRow(
            offsets, ids, births, commit, process_id=manifest.process_id, transactional_id=manifest.transactional_id
        )
        database.write(task.partition, {}, row)
        database.sync()
        for made in (database.path.parent, directory.path):  # RocksDB has synced the database's own folder
            sync_directory(made)
        reach("conversion.row")
        log.info("task %s: %d entries were converted to ranges in %.1f s", task, count, time.monotonic() - began)
    remove_tree(path)


def _begin(database: SubtopologyEngine, task: TaskId, manifest: TaskManifest) -> None:
    """Note the kinds of the stores in the manifest, and empty what an interrupted conversion has left in the range."""
    known = TaskManifest.read(database.path)
    engine = database.engine_name
    stores = {name: replace(store, engine=engine, changelog_id=None) for name, store in manifest.stores.items()}
    if known is None:
        known = replace(manifest, task=database.path.name, transactional_id=None, stores={})
    database.manifest = replace(known, stores={**stores, **known.stores})
    database.manifest.write(database.path)
    # A range that is already empty isn't emptied: its note would have the files that are linked below compacted.
    if left := [store for store in database.stores() if store in stores and _has_entries(database, task, store)]:
        database.wipe(task.partition, left, None)


def _has_entries(database: SubtopologyEngine, task: TaskId, store: str) -> bool:
    """Return whether the task's range has entries. A range that can't be read counts as one with entries."""
    try:
        return any(True for _ in database.open_store(store).scan(*span_of(task.partition)))
    except StateCorruptError:
        return True


def _take_store(
    path: Path,
    store: str,
    written: StoreManifest,
    database: SubtopologyEngine,
    task: TaskId,
    convert: Convert,
) -> tuple[int | None, int]:
    """Convert one store, and return its offset and the number of its entries. Raises `StateError`."""
    if _folder(path, store) is None:
        return None, 0
    own = TaskManifest.read(database.path)
    if own is not None and not _same(own.stores[store], written):
        raise StateFormatError(f"it was written as {written.kind}, and as {own.stores[store].kind} by other tasks")
    job = _job(path, store, written, database.path, task)
    count, files, offset = convert(job)
    reach("conversion.written")
    database.open_store(store)
    for _ in database.engine.ingest(store, files):
        pass
    remove_tree(job.target)
    return offset, count


def _same(one: StoreManifest, other: StoreManifest) -> bool:
    return (one.kind, one.layout, one.arrangement) == (other.kind, other.layout, other.arrangement)


def _table_files(directory: Path, entries: Entries) -> Mapping[Path, int]:
    remove_tree(directory)
    make_directory(directory)
    writer = SstWriter(directory)
    writer.write(entries)
    return writer.files


# -- into folders


class RangesOnDisk(NamedTuple):
    """A sub-topology's database, which is closed. `path`: its folder in `engines`. `database`: the folder with the
    database's current files. `stores`: those that have a column family. `rows`: by partition. `manifest`: None if none
    was written."""

    number: int
    path: Path
    engine: str
    database: Path
    stores: Sequence[str]
    rows: Mapping[int, RangeRow]
    manifest: TaskManifest | None

    @property
    def tasks(self) -> list[TaskId]:
        return [TaskId(self.number, partition) for partition in sorted(self.rows)]


def ranges_on_disk(path: Path, engines: Engines) -> RangesOnDisk:
    """Open the database in a sub-topology's folder, with the engine that has written it, and return what it has. The
    database is closed after that, so that all entries are in files, and a reader has no log to replay. Raises
    `StateError`."""
    engine = engine_of(path) or engines.name
    database = opened(int(path.name), path, engines if engine == engines.name else open_engines(engine))
    try:
        return RangesOnDisk(
            database.number, path, engine, database.folder, database.stores(), dict(database.rows), database.manifest
        )
    finally:
        database.close()


def range_jobs(directory: StateDirectory, task: TaskId, ranges: RangesOnDisk) -> list[RangeJob]:
    """Return the jobs that convert a task's range to a folder; none if the task has one. Removes what an earlier start
    has left half-made."""
    if TaskManifest.read(directory.task_path(task)) is not None:
        return []
    remove_tree(_working(directory, task))
    row, folder = ranges.rows[task.partition], _working(directory, task) / ROCKSDB
    return [
        RangeJob(ranges.database, ranges.engine, store, task.partition, row.offsets.get(store), folder / store)
        for store in _stores(ranges, task)
    ]


def _stores(ranges: RangesOnDisk, task: TaskId) -> list[str]:
    """Return the stores of a task that are in the database. A row may name others, which were removed."""
    return [store for store in ranges.stores if store in ranges.rows[task.partition].births]


def _working(directory: StateDirectory, task: TaskId) -> Path:
    """Return where a task's folder is made. After a crash the next start removes it."""
    return directory.path / f"{INCOMING}-{task}"


def is_whole(directory: StateDirectory, ranges: RangesOnDisk) -> bool:
    """Return whether the tasks' folders have all stores that the database has. All tasks are converted. A store that
    couldn't be read, in this start or an earlier one, has no folder."""
    given = [(directory.task_path(task), store) for task in ranges.tasks for store in _stores(ranges, task)]
    return all(_folder(path, store) is not None for path, store in given)


def give_out(
    directory: StateDirectory, task: TaskId, ranges: RangesOnDisk, jobs: Sequence[RangeJob], convert: Convert
) -> None:
    """Convert a task's range to a folder of its own, without stores that can't be read. `jobs`: its `range_jobs`.
    `convert`: as in `take_in`. The range stays until the whole database is removed. Raises `StateError`."""
    target, began, count = directory.task_path(task), time.monotonic(), 0
    if TaskManifest.read(target) is not None:
        return
    for job in jobs:
        try:
            count += convert(job).entries
        except StateCorruptError as error:
            log.error(
                "store %r of task %s can't be converted, and is restored, if it has a changelog: %s",
                job.store, task, error,
            )  # fmt: skip
            remove_tree(job.target)
    working = _working(directory, task)
    make_directory(working / ROCKSDB)
    sync_directory(working / ROCKSDB)
    _task_manifest(task, ranges).write(working)
    remove_tree(target)
    reach("conversion.given")
    with explained("make", target):
        working.rename(target)
    sync_directory(directory.path)
    reach("conversion.folder")
    log.info("task %s: %d entries were converted to folders in %.1f s", task, count, time.monotonic() - began)


def _task_manifest(task: TaskId, ranges: RangesOnDisk) -> TaskManifest:
    """Make the manifest of a task's folder."""
    row, known = ranges.rows[task.partition], ranges.manifest
    if known is None:
        raise StateFormatError(
            f"{ranges.path} holds stores, and no manifest that says of which kinds: start stage m6, which writes it "
            f"anew, or remove {ranges.path}: its state is restored from the changelogs"
        )
    stores = {
        name: replace(store, changelog_id=row.changelog_ids.get(name))
        for name, store in known.stores.items()
        if name in row.births
    }
    return replace(known, task=str(task), transactional_id=row.transactional_id, stores=stores)
