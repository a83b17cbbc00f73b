"""Fixtures of the tests of the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.milestones.app import App
from tests.milestones.client.fake_threads import FakeInstance, FakeThread


@pytest.fixture
def fake_threads() -> None:
    """The fakes of what a supervisor drives are as if none had been made before."""
    FakeThread.all, FakeThread.start_error = [], None
    FakeInstance.prepare_error = FakeInstance.close_error = None
    FakeInstance.closed = 0


@pytest.fixture
def app(kafka: str, tmp_path: Path) -> Iterator[App]:
    """An application on the broker, with no topics yet."""
    with ExitStack() as stack:
        yield App(kafka, tmp_path, stack)
