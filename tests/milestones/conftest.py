"""Fixtures of the tests of the runtime."""

from __future__ import annotations

import pytest

from tests.milestones.client.fake_threads import FakeInstance, FakeThread


@pytest.fixture
def fake_threads() -> None:
    """The fakes of what a supervisor drives are as if none had been made before."""
    FakeThread.all, FakeThread.start_error = [], None
    FakeInstance.prepare_error = FakeInstance.close_error = None
    FakeInstance.closed = 0
