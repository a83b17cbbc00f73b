"""Which state the cleaner removes, and which it never touches."""

from __future__ import annotations

from pathlib import Path

import pytest

from milestones.common.records import TaskId
from milestones.common.state.cleaner import remove_unused
from milestones.common.state.directory import StateDirectory
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
    clock = SetClock()
    directory = StateDirectory(tmp_path, "words", clock)
    fill(directory, TASK)
    clock.ahead_ms = 100 * DELAY
    assert not remove_unused(directory, directory.now_ms(), DELAY)
    clock.advance(DELAY)
    assert remove_unused(directory, directory.now_ms(), DELAY)
    directory.close()


class SetClock(StepClock):
    """A clock whose time of day can be set."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms
