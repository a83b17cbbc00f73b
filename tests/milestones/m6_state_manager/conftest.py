"""A state manager of ranges in a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.testing import StepClock
from milestones.m6_state_manager.manager import RangeStateManager
from tests.milestones.m6_state_manager.damage import Damaged


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path, "words", StepClock(1_000_000))


@pytest.fixture
def manager(directory: StateDirectory) -> Iterator[RangeStateManager]:
    opened = RangeStateManager(directory, open_engines("rocksdict"), "m6")
    yield opened
    opened.release()


@pytest.fixture
def damaged(directory: StateDirectory) -> Iterator[Damaged]:
    made = Damaged(directory)
    yield made
    made.end()
