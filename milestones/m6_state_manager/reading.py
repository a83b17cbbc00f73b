"""The stores on an instance's disk, for tools: by task, with their offsets, in either layout.

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
    """One store of one task. `birth`: an id that is new when the store was emptied; `entries`: read as they are asked
    for, while the database is open."""

    task: TaskId
    store: str
    offset: int | None
    birth: str
    entries: Iterator[tuple[bytes, bytes]]


def on_disk(directory: Path, engines: Engines) -> Iterator[tuple[str, StoreOnDisk]]:
    """All stores in `<state_dir>/<application_id>`, each with its layout. The entries are to be read before the next
    store is asked for. `StateError`."""
    for path in sorted(directory.glob(f"*_*/{ROCKSDB}/*")):
        for store in from_folder(path, engines):
            yield FOLDERS, store
    for path in databases(directory):
        for store in stores(path, engines):
            yield RANGES, store


def from_folder(path: Path, engines: Engines) -> Iterator[StoreOnDisk]:
    """The store in `<task>/rocksdb/<store>`. `StateError`."""
    engine = engines.open(path)
    try:
        namespace = engine.open(path.name)
        task = TaskId.parse(path.parts[-3])
        yield StoreOnDisk(task, path.name, namespace.offset(), "", namespace.scan(None, None))
    finally:
        engine.close()


def databases(directory: Path) -> list[Path]:
    """The databases of an instance, in its directory `<state_dir>/<application_id>`."""
    return sorted(path for path in (directory / DATABASES).glob("*") if path.name.isdigit())


def stores(path: Path, engines: Engines) -> Iterator[StoreOnDisk]:
    """The stores in the database of a sub-topology. `StateError`."""
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
