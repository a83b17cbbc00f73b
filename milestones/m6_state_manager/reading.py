"""Reads the stores on an instance's disk, for tools: by task, with their offsets, in either layout.

*Guarantees*: nothing is written.
*Assumes*: no process has the database open, or the path is that of a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from milestones.common.records import TaskId
from milestones.common.state.directory import DATABASES
from milestones.common.state.manifest import FOLDERS, RANGES
from milestones.common.state.task_storage import ROCKSDB
from milestones.m6_state_manager.ranges import BYTES, span_of
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

if TYPE_CHECKING:
    from milestones.common.state.engine import Engines


class StoreOnDisk(NamedTuple):
    """One store of one task. `birth` is an id that changes when the store is emptied. `entries` are read lazily, while
    the database is open."""

    task: TaskId
    store: str
    offset: int | None
    birth: str
    entries: Iterator[tuple[bytes, bytes]]


def on_disk(directory: Path, engines: Engines) -> Iterator[tuple[str, StoreOnDisk]]:
    """Yield all stores in `<state_dir>/<application_id>`, each with its layout. Read the entries of a store before you
    ask for the next store. Raises `StateError`."""
    for path in sorted(directory.glob(f"*_*/{ROCKSDB}/*")):
        for store in from_folder(path, engines):
            yield FOLDERS, store
    for path in databases(directory):
        for store in stores(path, engines):
            yield RANGES, store


def from_folder(path: Path, engines: Engines) -> Iterator[StoreOnDisk]:
    """Yield the store in `<task>/rocksdb/<store>`. Raises `StateError`."""
    engine = engines.open(path)
    try:
        namespace = engine.open(path.name)
        task = TaskId.parse(path.parts[-3])
        yield StoreOnDisk(task, path.name, namespace.offset(), "", namespace.scan(None, None))
    finally:
        engine.close()


def databases(directory: Path) -> list[Path]:
    """Return the databases of an instance, in its directory `<state_dir>/<application_id>`."""
    return sorted(path for path in (directory / DATABASES).glob("*") if path.name.isdigit())


def stores(path: Path, engines: Engines) -> Iterator[StoreOnDisk]:
    """Yield the stores in the database of a sub-topology. Raises `StateError`."""
    database = SubtopologyEngine(int(path.name), path, engines)
    try:
        for partition, row in database.rows.items():
            task, (first, beyond) = TaskId(database.number, partition), span_of(partition)
            for store in database.stores():
                found = database.open_store(store).scan(first, beyond)
                entries = ((key[BYTES:], value) for key, value in found)
                yield StoreOnDisk(task, store, row.offsets.get(store), row.births.get(store, ""), entries)
    finally:
        database.close()
