"""`milestones state`: what lies on a disk, in which layout, and how it gets into the other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from milestones.cli.main import invoke
from milestones.common.errors import StateError
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from tests.milestones.cli.conftest import plain

COUNTS, SUMS = StoreSpec("counts"), StoreSpec("sums")
TASKS = TaskId(0, 1), TaskId(2, 0)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """An application's state directory, with two tasks of two stores in it."""
    directory = StateDirectory(tmp_path / "state", "app")
    manager = LocalStateManager(directory, open_engines("rocksdict"), "m5")
    for task in TASKS:
        storage = manager.open(task, [COUNTS, SUMS])
        storage.apply({"counts": {b"a": b"1", b"b": b"2"}, "sums": {b"a": b"1"}}, {"counts": 12_345})
        storage.close()
    manager.release()
    return tmp_path / "state"


def run(words: Path, state: Path, what: str) -> int:
    return invoke(["state", what, str(words), "-a", "app", "--set", f"state_dir={state}"])


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line.strip()[:2] in ("0_", "2_")]


def listed(layout: str, *counts: str) -> list[list[str]]:
    entries = dict(zip(("counts", "sums"), counts, strict=True)) if counts else {}
    found = [
        [str(task), store, layout, *(["12,345"] if store == "counts" else []), *([entries[store]] if entries else [])]
        for task in TASKS
        for store in ("counts", "sums")
    ]
    return sorted(found)


def test_state_is_listed_taken_in_and_given_out_again(
    words: Path, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for what, layout in (("show", "folders"), ("import", "ranges"), ("export", "folders"), ("import", "ranges")):
        assert run(words, state, what) == 0
        capfd.readouterr()
        assert run(words, state, "show") == 0
        assert sorted(rows(capfd.readouterr().out)) == listed(layout)
        assert run(words, state, "verify") == 0
        assert sorted(rows(capfd.readouterr().out)) == listed(layout, "2", "1")


def test_what_cant_be_read_is_named(words: Path, state: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for file in (state / "app" / "0_1" / "rocksdb" / "counts").glob("MANIFEST-*"):
        file.write_bytes(b"nonsense" * 100)
    assert run(words, state, "verify") == StateError.exit_code
    assert "0_1/rocksdb/counts: is damaged" in plain(capfd.readouterr().err).replace(" ", "").replace(
        "isdamaged", " is damaged"
    )


def test_a_directory_that_an_instance_has_is_refused(
    words: Path, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    running = StateDirectory(state, "app")
    assert run(words, state, "export") == StateError.exit_code
    assert "stop that one" in plain(capfd.readouterr().err)
    running.close()


def test_an_application_without_state_is_told(words: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(words, tmp_path, "show") == StateError.exit_code
    assert "there is no state of app" in plain(capfd.readouterr().err)


def test_the_state_of_all_workers_is_listed_and_converted(
    words: Path, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = StateDirectory(state / "worker-2", "app")
    manager = LocalStateManager(directory, open_engines("rocksdict"), "m5")
    manager.open(TaskId(0, 7), [COUNTS]).close()
    manager.release()
    (state / "worker-3" / "another").mkdir(parents=True)
    for what, layout in (("show", "folders"), ("import", "ranges"), ("export", "folders")):
        assert run(words, state, what) == 0
        capfd.readouterr()
        assert run(words, state, "show") == 0
        shown = capfd.readouterr()
        assert sorted(rows(shown.out)) == sorted([*listed(layout), ["0_7", "counts", layout]])
        assert plain(shown.err) == f"{state / 'app'}: {state / 'worker-2' / 'app'}:"


def test_an_instance_takes_the_folders_of_workers_for_nothing_of_its_own(state: Path) -> None:
    StateDirectory(state / "worker-2", "app").close()
    directory = StateDirectory(state, "app")
    directory.clear()
    directory.close()
    assert (state / "worker-2" / "app" / "process").is_file()
    with pytest.raises(StateError, match="no file 'process' but holds app"):
        StateDirectory(state, "worker-2")
