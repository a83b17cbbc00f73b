"""State goes into ranges, and out into folders again, whatever breaks off in between."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from milestones.common.errors import StateError
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.manifest import TaskManifest
from milestones.m6_state_manager import conversion
from milestones.m6_state_manager.conversion import folder_state_manager
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine
from tests.milestones.m6_state_manager.states import COUNTS, OTHER, SUMS, TASK, UNLOGGED, entries, found

SPECS = [COUNTS, SUMS, UNLOGGED]
TASKS = [TaskId(0, 0), TASK, TaskId(0, 7), OTHER]
FOLDERS, RANGES = folder_state_manager, RangeStateManager


def start(directory: StateDirectory, manager: Any, engine: str = "rocksdict") -> Any:
    return manager(directory, open_engines(engine), "a stage")


def content(manager: Any) -> dict[TaskId, Any]:
    """Everything that the tasks have."""
    told = {}
    for task in TASKS:
        storage = manager.open(task, SPECS)
        stores = {spec.name: found(storage, spec.name) for spec in SPECS}
        told[task] = stores, storage.offsets(), dict(storage.changelog_ids())
        storage.close()
    return told


def fill(manager: Any) -> dict[TaskId, Any]:
    for task in TASKS:
        storage = manager.open(task, SPECS, "words-1")
        own = entries(100 + task.partition, str(task).encode())
        storage.apply({spec.name: own for spec in SPECS}, {"counts": 5 + task.partition})
        storage.keep_changelog_ids({"counts": f"id of {task}"})
        storage.close()
    return content(manager)


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


def points(monkeypatch: pytest.MonkeyPatch, at: int) -> list[str]:
    """What a conversion does to the disk, in order; the process ends at the `at`-th of them."""
    passed: list[str] = []

    def before(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def reached(*args: Any, **kwargs: Any) -> Any:
            passed.append(name)
            if len(passed) == at + 1:
                raise PowerCut
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, reached)

    for name in ("write", "wipe", "sync"):
        before(SubtopologyEngine, name)
    for name in ("remove_tree", "_table_files", "make_directory"):
        before(conversion, name)
    before(TaskManifest, "write")
    before(Path, "rename")
    return passed


@pytest.mark.parametrize(("before", "after"), [(FOLDERS, RANGES), (RANGES, FOLDERS)])
def test_a_kill_at_any_step_of_a_conversion_costs_nothing_whatever_stage_starts_next(
    tmp_path: Path, before: Any, after: Any
) -> None:
    home = StateDirectory(tmp_path / "home", "words")
    first = start(home, before)
    expected = fill(first)
    first.release()
    at, ended = 0, False
    while not ended:
        for following in (before, after):
            state = tmp_path / f"{at}-{following.__name__}"
            shutil.copytree(home.path.parent, state)
            with pytest.MonkeyPatch.context() as patched:
                points(patched, at)
                directory = StateDirectory(state, "words")
                try:
                    start(directory, after).release()
                    ended = True
                except PowerCut:
                    pass
            directory.close()
            again = StateDirectory(state, "words")
            opened = start(again, following)
            assert content(opened) == expected, at
            opened.release()
            shutil.rmtree(state)
        at += 1
    assert at > 20


def test_a_store_that_cant_be_read_is_left_behind_and_the_others_are_taken(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    before = fill(start(directory, FOLDERS))
    for file in (directory.task_path(TASK) / "rocksdb" / "counts").glob("MANIFEST-*"):
        file.write_bytes(b"nonsense" * 100)
    after = content(start(directory, RANGES))
    assert "store 'counts' of task 0_1 isn't taken over, and is restored" in caplog.text
    assert after.pop(TASK)[0] == {**before.pop(TASK)[0], "counts": {}}
    assert after == before
