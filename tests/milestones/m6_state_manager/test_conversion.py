"""State goes into ranges, and out into folders again, whatever breaks off in between."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milestones.common.errors import StateError, StateFormatError
from milestones.common.records import TaskId
from milestones.common.state import disk
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.rocksdict_engine import RocksDictEngine
from milestones.common.state.manifest import TaskManifest
from milestones.common.state.spec import StoreSpec
from milestones.m6_state_manager.conversion import layouts
from milestones.m6_state_manager.conversion.all_tasks import folder_state_manager
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine
from tests.milestones.m6_state_manager.damage import ENTRIES, random_entries
from tests.milestones.m6_state_manager.states import COUNTS, NEIGHBOUR, OTHER, SUMS, TASK, UNLOGGED, entries, found

SPECS = [COUNTS, SUMS, UNLOGGED]
TASKS = [TaskId(0, 0), TASK, TaskId(0, 7), OTHER]
FOLDERS, RANGES = folder_state_manager, RangeStateManager


def start(directory: StateDirectory, manager: Any, engine: str = "rocksdict") -> Any:
    return manager(directory, open_engines(engine), "a stage")


def content(manager: Any, tasks: Sequence[TaskId] = TASKS, specs: Sequence[StoreSpec] = SPECS) -> dict[TaskId, Any]:
    """Everything that the tasks have."""
    told = {}
    for task in tasks:
        storage = manager.open(task, specs)
        stores = {spec.name: found(storage, spec.name) for spec in specs}
        told[task] = stores, storage.offsets(), dict(storage.changelog_ids())
        storage.close()
    return told


def fill(manager: Any, tasks: Sequence[TaskId] = TASKS, specs: Sequence[StoreSpec] = SPECS) -> dict[TaskId, Any]:
    for task in tasks:
        storage = manager.open(task, specs, "words-1")
        own = entries(100 + task.partition, str(task).encode())
        storage.apply({spec.name: own for spec in specs}, {"counts": 5 + task.partition})
        storage.keep_changelog_ids({"counts": f"id of {task}"})
        storage.close()
    return content(manager, tasks, specs)


@pytest.mark.parametrize("engine", ["rocksdict", "rocksdb"])
def test_all_state_goes_in_and_out_by_restarts(directory: StateDirectory, engine: str) -> None:
    if engine == "rocksdb":
        pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    first = start(directory, FOLDERS, engine)
    before = fill(first)
    for manager in (RANGES, RANGES, FOLDERS, FOLDERS, RANGES, FOLDERS):
        opened = start(directory, manager, engine)
        assert opened.closed_offsets().keys() == set(TASKS) or manager is FOLDERS
        assert content(opened) == before
        laid = {path.name for path in directory.path.iterdir() if path.name[0] != "."} - {"process"}
        assert laid == ({"engines"} if manager is RANGES else {str(task) for task in TASKS} | ({"engines"} & laid))
        if manager is RANGES:
            for database in opened._databases.values():
                database.close()


def test_an_older_release_refuses_ranges_with_the_command_that_helps(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(directory, RANGES)
    monkeypatch.setattr("milestones.common.state.manifest.LAYOUTS", {"folders": 1})
    directory.close()
    with pytest.raises(StateError, match="`milestones state export`"):
        StateDirectory(directory.path.parent, "words")


class PowerCut(BaseException):
    """The process ends here."""


def copied(state: Path, to: Path) -> None:
    """Copy what is on disk, also while RocksDB removes files of its own."""
    while True:
        try:
            shutil.copytree(state, to)
        except shutil.Error:
            shutil.rmtree(to)
        else:
            return


def cut(monkeypatch: pytest.MonkeyPatch, at: int, state: Path, left: Path) -> None:
    """Have the process end at the `at`-th thing that a conversion does to the disk: `state` is as in `left` then."""
    passed: list[str] = []

    def before(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def reached(*args: Any, **kwargs: Any) -> Any:
            passed.append(name)
            if len(passed) == at + 1:
                copied(state, left)
                raise PowerCut
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, reached)

    for name in ("write", "wipe", "sync"):
        before(SubtopologyEngine, name)
    for name in ("remove_tree", "_table_files", "make_directory"):
        before(layouts, name)
    remover = SimpleNamespace(rmtree=shutil.rmtree)
    monkeypatch.setattr(disk, "shutil", remover)
    before(remover, "rmtree")
    before(TaskManifest, "write")
    before(RocksDictEngine, "ingest")


def left_over(state: Path) -> list[str]:
    """The entries of the state directory whose names no part of the product gives for good."""
    return [str(path.relative_to(state)) for path in state.rglob(".*") if path.name != ".lock"]


def killed_at_steps(home: StateDirectory, after: Any, see: Callable[[Path], object], steps: range) -> int:
    """Have a conversion to the layout `after` end at these of its steps, each on a copy of `home`, and `see` to what is
    left; the step that none comes after."""
    for at in steps:
        state = home.path.parent.with_name(f"{at}")
        left = state.with_name(f"{at}-left")
        shutil.copytree(home.path.parent, state)
        directory = StateDirectory(state, "words")
        with pytest.MonkeyPatch.context() as patched, contextlib.suppress(PowerCut):
            cut(patched, at, state, left)
            start(directory, after).release()
            return at
        directory.close()
        see(left)
        shutil.rmtree(left)
        shutil.rmtree(state)
    raise AssertionError(f"the conversion doesn't come to an end within {steps}")


def either_layout_has(expected: Any, few: Any) -> Callable[[Path], None]:
    """See that either layout's next start has what is expected."""

    def see(left: Path) -> None:
        for following in (FOLDERS, RANGES):
            again = left.with_name(f"{left.name}-{following.__name__}")
            shutil.copytree(left, again)
            opened = start(StateDirectory(again, "words"), following)
            assert content(opened, *few) == expected, left
            opened.release()
            assert left_over(again) == [], left
            shutil.rmtree(again)

    return see


@pytest.mark.parametrize(("before", "after"), [(FOLDERS, RANGES), (RANGES, FOLDERS)])
def test_a_kill_at_any_step_of_a_conversion_costs_nothing_whatever_stage_starts_next(
    tmp_path: Path, before: Any, after: Any
) -> None:
    home = StateDirectory(tmp_path / "home", "words")
    first = start(home, before)
    few = [TASK, NEIGHBOUR], [COUNTS, UNLOGGED]
    expected = fill(first, *few)
    first.release()
    assert killed_at_steps(home, after, either_layout_has(expected, few), range(1_000)) > 20


@pytest.mark.parametrize(("before", "after"), [(FOLDERS, RANGES), (RANGES, FOLDERS)])
def test_the_files_of_what_cant_be_read_are_kept_at_whatever_step_a_conversion_is_killed(
    tmp_path: Path, before: Any, after: Any
) -> None:
    home = StateDirectory(tmp_path / "home", "words")
    first = start(home, before)
    few = [TASK, NEIGHBOUR], [COUNTS]
    for task in few[0]:
        storage = first.open(task, [COUNTS])
        storage.apply({"counts": random_entries()}, {"counts": 7})
        storage.close()
    first.release()
    start(home, before).release()
    damaged = flipped(tmp_path / "home")

    def see(left: Path) -> None:
        opened = start(StateDirectory(left, "words"), after)
        sizes = [len(stores["counts"]) for stores, *_ in content(opened, *few).values()]
        assert sorted(sizes) == [0, ENTRIES]
        opened.release()
        kept = [file.read_bytes() for aside in (left / "words" / "engines").glob("*-corrupt") for file in files(aside)]
        assert damaged in kept, left

    assert killed_at_steps(home, after, see, range(1_000)) > 20


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def flipped(folder: Path) -> bytes:
    """Change a byte of the entries in the largest table file; its content then."""
    largest = max(folder.rglob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[100] ^= 0xFF
    largest.write_bytes(data)
    return bytes(data)


def test_a_store_that_cant_be_read_is_left_behind_and_the_others_are_taken(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    before = fill(start(directory, FOLDERS))
    for file in (directory.task_path(TASK) / "rocksdb" / "counts").glob("MANIFEST-*"):
        file.write_bytes(b"nonsense" * 100)
    after = content(start(directory, RANGES))
    assert "store 'counts' of task 0_1 can't be converted, its files are kept in" in caplog.text
    assert (directory.path / "engines" / "0_1-counts-corrupt" / "CURRENT").exists()
    assert after.pop(TASK)[0] == {**before.pop(TASK)[0], "counts": {}}
    assert after == before


def test_stores_that_arent_ours_are_refused_and_stay(directory: StateDirectory) -> None:
    fill(start(directory, FOLDERS))
    (directory.task_path(TASK) / "manifest.json").unlink()
    with pytest.raises(StateFormatError, match="no manifest of task 0_1"):
        start(directory, RANGES)
    assert (directory.task_path(TASK) / "rocksdb" / "counts" / "CURRENT").exists()


@pytest.mark.parametrize(("before", "after"), [(FOLDERS, RANGES), (RANGES, FOLDERS)])
def test_a_full_disk_ends_a_conversion_with_all_in_its_place(
    directory: StateDirectory, before: Any, after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(directory, before)
    expected = fill(first)
    if before is RANGES:
        for database in first.databases():
            database.close()
    with monkeypatch.context() as patched:
        patched.setattr(layouts, "_table_files", full)
        with pytest.raises(StateError, match="disk full"):
            start(directory, after)
    assert content(start(directory, after)) == expected


def full(*_: Any) -> Any:
    raise StateError("disk full: free some space")


def test_a_damaged_database_is_set_aside_before_an_earlier_stage_begins(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    ranges = start(directory, RANGES)
    before = fill(ranges)
    for database in ranges.databases():
        database.close()
    for file in (directory.path / "engines" / "0" / "rocksdb").glob("MANIFEST-*"):
        file.write_bytes(b"nonsense" * 100)
    after = content(start(directory, FOLDERS))
    assert "the state of sub-topology 0 starts empty" in caplog.text
    assert after[OTHER] == before[OTHER]
    assert after[TASK][0] == {spec.name: {} for spec in SPECS}
    assert list((directory.path / "engines" / "0-corrupt").rglob("MANIFEST-*")), "its files are kept"


def test_ranges_of_unknown_kinds_are_refused_with_the_ways_out(directory: StateDirectory) -> None:
    first = start(directory, RANGES)
    before = fill(first)
    first.release()
    for manifest in (directory.path / "engines").glob("*/manifest.json"):
        manifest.unlink()
    with pytest.raises(StateFormatError, match=r"engines/0 holds stores.*start stage m6, which writes it anew"):
        start(directory, FOLDERS)
    ranges = start(directory, RANGES)
    assert content(ranges) == before
    ranges.release()
    assert content(start(directory, FOLDERS)) == before


def test_a_range_that_cant_be_read_stays_behind_and_the_others_are_given_out(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    ranges = start(directory, RANGES)
    before = fill(ranges)
    ranges.release()
    flipped(directory.path / "engines" / "0" / "rocksdb")
    after = content(start(directory, FOLDERS))
    assert "can't be converted, and is restored" in caplog.text
    kept = directory.path / "engines" / "0-corrupt"
    assert f"some of which can't be read, are kept in {kept}" in caplog.text
    assert (kept / "rocksdb" / "CURRENT").exists()
    stores = [(task, spec.name) for task in TASKS for spec in SPECS]
    lost = [(task, store) for task, store in stores if after[task][0][store] != before[task][0][store]]
    assert lost
    assert len({store for _, store in lost}) == 1
    assert all(after[task][0][store] == {} for task, store in lost)
    assert all(after[task][1][store] is None for task, store in lost)
    assert after[OTHER] == before[OTHER]
