"""Files that were set aside go once they are old, unless they may be the only copy of something."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from milestones.common.records import TaskId
from milestones.common.state.directory import DATABASES, StateDirectory
from milestones.common.state.disk import remove_tree
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreSpec
from milestones.m6_state_manager.conversion.all_tasks import folder_state_manager
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending.kept_files import KEPT_MS
from tests.milestones.m6_state_manager.damage import flip, mend, table_files, written
from tests.milestones.m6_state_manager.states import COUNTS, OTHER, SUMS, TASK, UNLOGGED, reopened

DELAY_MS = 600_000
MENDED, GIVEN_OUT, TAKEN_IN, FOREIGN = "0/corrupt", "0-corrupt", "0_1-counts-corrupt", "0-rocksdict"


def kept(directory: StateDirectory) -> set[str]:
    """The names of the files that were set aside, and are there."""
    engines = directory.path / DATABASES
    return {name for name in (MENDED, GIVEN_OUT, TAKEN_IN, FOREIGN) if (engines / name).is_dir()}


def cleaned(manager: RangeStateManager, after_ms: int) -> set[str]:
    """The files that the cleaner leaves when it comes so long after they were set aside."""
    engines = manager.directory.path / DATABASES
    (since_ms,) = {(engines / name).stat().st_mtime_ns // 1_000_000 for name in kept(manager.directory)}
    manager.clean(since_ms + after_ms, 2**60)
    return kept(manager.directory)


def mended(directory: StateDirectory, specs: Sequence[StoreSpec]) -> RangeStateManager:
    """A manager that has mended a database, of whose task these stores are open."""
    files, _ = written(directory, [TASK], [COUNTS, UNLOGGED])
    flip(files[TASK, "counts"])
    manager = reopened(directory)
    manager.open(TASK, specs)
    mend(manager)
    manager.databases()[0].replaced.let_go(0)
    return manager


def only_logged(directory: StateDirectory, *tasks: TaskId) -> None:
    written(directory, tasks or [TASK], [COUNTS])


def test_the_files_of_a_mended_database_stay_for_a_week(directory: StateDirectory) -> None:
    only_logged(directory)
    flip(max(table_files(directory), key=lambda file: file.stat().st_size))
    manager = reopened(directory)
    manager.open(TASK, [COUNTS])
    mend(manager)
    (database,) = manager.databases()
    manager.clean(2**60, 2**60)
    assert kept(directory) == set()
    assert len(database.replaced) == 1, "it isn't set aside yet"
    database.replaced.let_go(0)
    assert cleaned(manager, KEPT_MS - 1) == {MENDED}
    assert cleaned(manager, KEPT_MS) == set()
    manager.release()


@pytest.mark.parametrize("specs", [[COUNTS, UNLOGGED], [COUNTS]], ids=["has", "had"])
def test_they_stay_for_good_where_the_sub_topology_has_a_store_without_changelog_or_had_one(
    directory: StateDirectory, specs: Sequence[StoreSpec]
) -> None:
    manager = mended(directory, specs)
    assert cleaned(manager, 2**60) == {MENDED}
    manager.release()


def test_they_stay_while_it_isnt_known_what_the_topology_has(directory: StateDirectory) -> None:
    only_logged(directory, TASK, OTHER)
    flip(max(table_files(directory), key=lambda file: file.stat().st_size))
    manager = reopened(directory)
    mend(manager)
    manager.databases()[0].replaced.let_go(0)
    manager.open(OTHER, [COUNTS])
    assert cleaned(manager, 2**60) == {MENDED}
    manager.open(TASK, [COUNTS])
    assert cleaned(manager, 2**60) == set()
    manager.release()


def test_what_conversions_couldnt_read_goes_too(directory: StateDirectory) -> None:
    only_logged(directory)
    flip(max(table_files(directory), key=lambda file: file.stat().st_size))
    folders = folder_state_manager(directory, open_engines("rocksdict"), "m5")
    assert kept(directory) == {GIVEN_OUT}
    storage = folders.open(TASK, [COUNTS])
    storage.apply({"counts": {b"key": b"value"}}, {"counts": 1})
    storage.close()
    assert_goes(reopened(directory), GIVEN_OUT)
    remove_tree(directory.path / DATABASES)
    storage = folders.open(TASK, [COUNTS])
    storage.apply({"counts": {b"key": b"value"}}, {"counts": 1})
    storage.close()
    damage_manifest(directory.task_path(TASK))
    assert_goes(reopened(directory), TAKEN_IN)


def damage_manifest(folder: Path) -> None:
    for file in folder.rglob("MANIFEST-*"):
        file.write_bytes(b"nonsense" * 100)


def assert_goes(manager: RangeStateManager, name: str) -> None:
    """What was set aside is there for a week, and then it isn't."""
    manager.open(TASK, [COUNTS]).close()
    assert cleaned(manager, KEPT_MS - 1) == {name}
    assert cleaned(manager, KEPT_MS) == set()
    for database in manager.databases():
        database.close()


def test_what_another_engine_has_written_goes_too_unless_it_had_a_store_that_nobody_knows_now(
    directory: StateDirectory,
) -> None:
    pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    written(directory, [TASK], [COUNTS, SUMS])
    manager = reopened(directory, engines=open_engines("rocksdb"))
    storage = manager.open(TASK, [COUNTS])
    assert cleaned(manager, 2**60) == {FOREIGN}
    storage.close()
    manager.databases()[0].agreed = None
    manager.open(TASK, [COUNTS, SUMS])
    assert cleaned(manager, KEPT_MS) == set()
    manager.release()


def test_the_time_of_files_is_when_they_were_set_aside(directory: StateDirectory) -> None:
    only_logged(directory)
    folder = directory.path / DATABASES / "0" / "rocksdb"
    os.utime(folder, (1, 1))
    damage_manifest(folder)
    os.utime(folder, (1, 1))
    manager = reopened(directory)
    manager.open(TASK, [COUNTS])
    assert cleaned(manager, KEPT_MS - 1) == {MENDED}
    assert (folder.parent / "corrupt").stat().st_mtime > 1_000
    manager.release()
