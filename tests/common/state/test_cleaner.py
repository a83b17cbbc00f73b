"""Which state the cleaner removes, and which it never touches."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milestones.common.errors import StateError
from milestones.common.records import TaskId
from milestones.common.state.cleaner import remove_unused
from milestones.common.state.directory import StateDirectory
from milestones.common.state.unused_times import name_of_store
from milestones.testing import StepClock
from tests.common.state.test_directory import fill

DELAY = 600_000
TASK, OTHER = TaskId(0, 0), TaskId(0, 1)


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def directory(tmp_path: Path, clock: StepClock) -> StateDirectory:
    return StateDirectory(tmp_path, "words", clock)


def test_state_is_kept_for_the_delay_and_then_removed(directory: StateDirectory, clock: StepClock) -> None:
    fill(directory, TASK)
    clock.advance(1000)
    fill(directory, OTHER)
    assert not remove_unused(directory, clock.wall_ms() + DELAY - 1001, DELAY)
    assert directory.tasks() == [TASK, OTHER]
    assert remove_unused(directory, clock.wall_ms() + DELAY - 1, DELAY)
    assert directory.tasks() == [OTHER]
    assert remove_unused(directory, clock.wall_ms() + DELAY, DELAY)
    assert directory.tasks() == []


def test_state_in_use_is_never_removed(directory: StateDirectory, clock: StepClock) -> None:
    fill(directory, TASK)
    held = directory.lock(TASK)
    assert not remove_unused(directory, clock.wall_ms() + 100 * DELAY, DELAY)
    assert directory.tasks() == [TASK]
    held.unlock()


def test_the_delay_of_a_task_begins_when_it_is_given_back(directory: StateDirectory, clock: StepClock) -> None:
    fill(directory, TASK)
    held = directory.lock(TASK)
    clock.advance(10 * DELAY)
    held.unlock()
    assert not remove_unused(directory, clock.wall_ms() + DELAY - 1, DELAY)
    assert remove_unused(directory, clock.wall_ms() + DELAY, DELAY)


def test_after_a_restart_the_delay_begins_anew(directory: StateDirectory, clock: StepClock, tmp_path: Path) -> None:
    fill(directory, TASK)
    directory.close()
    clock.advance(100 * DELAY)
    directory = StateDirectory(tmp_path, "words", clock)
    assert not remove_unused(directory, clock.wall_ms() + DELAY - 1, DELAY)
    assert directory.tasks() == [TASK]


def test_one_task_that_can_t_be_removed_doesn_t_keep_the_others(
    directory: StateDirectory, clock: StepClock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(directory, TASK)
    fill(directory, OTHER)
    lock = directory.path / str(TASK) / ".lock"
    lock.unlink()
    lock.mkdir()
    assert remove_unused(directory, clock.wall_ms() + DELAY, DELAY)
    assert directory.tasks() == [TASK]
    assert "task 0_0" in caplog.text


def test_a_task_that_starts_while_it_is_removed_finds_it_locked_or_gone(
    directory: StateDirectory, clock: StepClock
) -> None:
    fill(directory, TASK)
    assert remove_unused(directory, clock.wall_ms(), 0)
    held = directory.lock(TASK)
    assert [path.name for path in held.path.iterdir()] == [".lock"]
    held.unlock()


def test_a_clock_that_is_set_ahead_removes_no_state_that_was_in_use_a_moment_ago(tmp_path: Path) -> None:
    """The delay counts what has passed, not what the wall clock shows."""
    clock = StepClock()
    directory = StateDirectory(tmp_path, "words", clock)
    fill(directory, TASK)
    clock.set_wall_ms(clock.wall_ms() + 100 * DELAY)
    assert not remove_unused(directory, directory.now_ms(), DELAY)
    clock.advance(DELAY)
    assert remove_unused(directory, directory.now_ms(), DELAY)
    directory.close()


class Life:
    """An instance on the directory: from its start to its end."""

    def __init__(self, path: Path, clock: StepClock) -> None:
        self.directory, self.clock = StateDirectory(path, "words", clock), clock

    def clean(self) -> list[TaskId]:
        """What is removed by now."""
        return remove_unused(self.directory, self.directory.now_ms(), DELAY)

    def run(self, ms: int) -> list[TaskId]:
        """Let so much time pass, with ten cleanings in each delay; what they remove."""
        removed = self.clean()
        for _ in range(0, ms, DELAY // 10):
            self.clock.advance(DELAY // 10)
            removed += self.clean()
        return removed


def lived(path: Path, clock: StepClock, ms: int) -> Life:
    """One that has run for so long without the task's state, and is over."""
    life = Life(path, clock)
    fill(life.directory, TASK)
    life.run(ms)
    life.directory.close()
    return life


def test_restarts_more_frequent_than_the_delay_keep_no_old_state_for_good(tmp_path: Path, clock: StepClock) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    for _ in range(9):
        assert life.run(DELAY // 10) == []
        life.directory.close()
        clock.advance(7 * DELAY)  # nothing runs: this doesn't count
        life = Life(tmp_path, clock)
    assert life.run(DELAY // 10 - 1) == [TASK]
    life.directory.close()


def test_time_up_to_an_end_as_planned_counts_to_the_millisecond(tmp_path: Path, clock: StepClock) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    life.clean()
    clock.advance(DELAY - 1)
    life.directory.close()
    again = Life(tmp_path, clock)
    assert again.clean() == []
    clock.advance(1)
    assert again.clean() == [TASK]
    again.directory.close()
    assert not (again.directory.path / "unused.json").exists(), "what is gone has no time"


def test_after_kill_9_the_time_up_to_the_last_cleaning_counts(tmp_path: Path, clock: StepClock) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    life.run(DELAY // 2)
    clock.advance(DELAY // 20)
    killed(life)
    again = Life(tmp_path, clock)
    assert again.run(DELAY // 2 - 1) == [TASK]
    again.directory.close()


def killed(life: Life) -> None:
    """Free the directory as `kill -9` does."""
    life.directory._lock.release()


@pytest.mark.parametrize("ends", [killed, lambda life: life.directory.close()], ids=["kill -9", "as planned"])
@pytest.mark.parametrize("is_cleaned", [True, False], ids=["cleaned meanwhile", "not cleaned meanwhile"])
def test_what_was_used_after_it_was_old_is_kept_for_all_of_the_delay(
    tmp_path: Path, clock: StepClock, ends: Callable[[Life], None], is_cleaned: bool
) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    life.run(DELAY * 9 // 10)
    held = life.directory.lock(TASK)
    if is_cleaned:
        assert life.clean() == []
    ends(life)
    assert held._lock is not None
    held._lock.release()  # as each end of a process does
    again = Life(tmp_path, clock)
    assert again.run(DELAY * 9 // 10) == []
    assert again.run(DELAY // 10) == [TASK]
    again.directory.close()


@pytest.mark.parametrize("jump_ms", [100 * DELAY, -100 * DELAY])
@pytest.mark.parametrize("when", ["while it runs", "between two runs"])
def test_a_clock_that_is_set_ages_no_state_and_keeps_none_young(
    tmp_path: Path, clock: StepClock, jump_ms: int, when: str
) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    assert life.run(DELAY // 2) == []
    if when == "between two runs":
        life.directory.close()
        clock.set_wall_ms(clock.wall_ms() + jump_ms)
        life = Life(tmp_path, clock)
    else:
        clock.set_wall_ms(clock.wall_ms() + jump_ms)
    assert life.clean() == []
    clock.advance(DELAY // 2 - 1)
    assert life.clean() == []
    clock.advance(1)
    assert life.clean() == [TASK]
    life.directory.close()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 2}', '{"format": 1, "unused_ms": {"0_0": "?"}}'])
def test_a_file_of_times_that_cannot_be_read_has_the_delay_begin_anew(
    tmp_path: Path, clock: StepClock, content: str
) -> None:
    life = lived(tmp_path, clock, DELAY * 9 // 10)
    (life.directory.path / "unused.json").write_text(content)
    again = Life(tmp_path, clock)
    assert again.run(DELAY * 9 // 10) == []
    assert again.run(DELAY // 10) == [TASK]
    again.directory.close()


def test_a_directory_whose_identity_was_removed_is_taken_as_it_is_and_the_times_count(
    tmp_path: Path, clock: StepClock
) -> None:
    """The error of an identity that can't be read says to remove it."""
    life = lived(tmp_path, clock, DELAY // 2)
    (life.directory.path / "process").unlink()
    again = Life(tmp_path, clock)
    assert again.run(DELAY // 2) == [TASK]
    again.directory.close()


def test_who_deletes_a_directory_under_its_lock_hears_of_no_times(
    tmp_path: Path, clock: StepClock, caplog: pytest.LogCaptureFixture
) -> None:
    lived(tmp_path, clock, DELAY // 2)
    reset = StateDirectory(tmp_path, "words", clock)
    clock.advance(1)
    shutil.rmtree(reset.path)
    reset.close()
    assert (reset.path.exists(), caplog.text) == (False, "")


def test_times_that_cannot_be_written_down_are_a_warning(
    tmp_path: Path, clock: StepClock, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    (life.directory.path / ".unused.json.tmp").mkdir()
    assert life.run(DELAY) == [TASK]
    life.directory.lock(TASK).unlock()
    assert "unused.json: Is a directory" in caplog.text
    life.directory.close()


def test_where_all_state_is_deleted_no_times_are_left(tmp_path: Path, clock: StepClock) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    life.directory.unused.since(name_of_store(0, "a store without a folder"))
    life.run(DELAY * 9 // 10)
    life.directory.clear()
    life.directory.close()
    assert sorted(path.name for path in life.directory.path.iterdir()) == [".lock", "process"]


class Disk:
    """A disk that refuses calls by errors of the system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, int] = {}
        for name in ("rename", "rmdir", "unlink"):
            self._guard(monkeypatch, name)

    def _guard(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        real = getattr(os, name)

        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if (number := self.errors.get(name)) is not None:
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, name, call)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


ERRORS = [errno.EIO, errno.EBUSY, errno.ENOSPC, errno.ENOTEMPTY, errno.EACCES, errno.ESTALE]


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", ["rename", "rmdir", "unlink"])
def test_state_that_the_disk_refuses_to_delete_is_a_warning_with_its_path_and_goes_with_the_next_cleaning(
    tmp_path: Path, clock: StepClock, disk: Disk, caplog: pytest.LogCaptureFixture, name: str, number: int
) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    fill(life.directory, OTHER)
    clock.advance(DELAY)
    disk.errors = {name: number}
    removed = life.clean()
    path = life.directory.task_path(TASK)
    assert f"{path}: {os.strerror(number)}" in caplog.text
    assert {record.levelname for record in caplog.records if record.name.endswith(("cleaner", "directory"))} >= {
        "WARNING"
    }
    assert sorted([*life.directory.tasks(), *removed]) == [TASK, OTHER], "a task is there, or gone"
    clock.advance(DELAY // 10)
    caplog.clear()
    life.clean()
    assert os.strerror(number) in caplog.text
    disk.errors = {}
    clock.advance(DELAY // 10)
    life.clean()
    assert [path.name for path in life.directory.path.iterdir() if path.name.startswith((".trash", "0_"))] == []
    life.directory.close()


def test_files_that_the_last_process_left_are_named_at_the_start_and_deleted_once_the_disk_allows_it(
    tmp_path: Path, clock: StepClock, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    trash = life.directory.task_path(TASK).rename(life.directory.path / ".trash-1")
    life.directory.close()
    disk.errors = {"unlink": errno.EIO}
    life = Life(tmp_path, clock)
    assert f"still on the disk: can't delete .trash-1, which was {trash}: Input/output error" in caplog.text
    disk.errors = {}
    life.clean()
    assert not trash.exists()
    life.directory.close()


def test_what_is_left_of_one_directory_is_none_of_anothers_and_is_forgotten_once_it_is_deleted(
    tmp_path: Path, clock: StepClock, disk: Disk
) -> None:
    one, other = Life(tmp_path / "one", clock), Life(tmp_path / "other", clock)
    fill(one.directory, TASK)
    clock.advance(DELAY)
    disk.errors = {"unlink": errno.EIO}
    assert one.clean() == [TASK]
    disk.errors = {}
    other.clean()
    (trash,) = one.directory.path.glob(".trash-*")
    one.clean()
    trash.mkdir()
    one.clean()
    assert trash.exists()
    one.directory.close()
    other.directory.close()


def test_what_is_left_and_deleted_by_hand_is_no_trouble(
    tmp_path: Path, clock: StepClock, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    clock.advance(DELAY)
    disk.errors = {"unlink": errno.EIO}
    life.clean()
    disk.errors = {}
    (trash,) = life.directory.path.glob(".trash-*")
    shutil.rmtree(trash)
    caplog.clear()
    life.clean()
    assert caplog.text == ""
    life.directory.close()


def test_a_directory_that_is_closed_again_leaves_the_times_of_its_next_owner_alone(
    tmp_path: Path, clock: StepClock
) -> None:
    life = lived(tmp_path, clock, DELAY // 2)
    again = Life(tmp_path, clock)
    held = again.directory.lock(TASK)
    again.clean()
    clock.advance(1)
    life.directory.close()
    assert not (life.directory.path / "unused.json").exists()
    held.unlock()
    again.directory.close()


def test_where_all_state_is_to_be_deleted_files_that_are_left_are_an_error(
    tmp_path: Path, clock: StepClock, disk: Disk
) -> None:
    life = Life(tmp_path, clock)
    fill(life.directory, TASK)
    disk.errors = {"unlink": errno.EIO}
    with pytest.raises(StateError, match="0_0: Input/output error"):
        life.directory.clear()
    disk.errors = {}
    life.directory.clear()
    assert sorted(path.name for path in life.directory.path.iterdir()) == [".lock", "process"]
    life.directory.close()
