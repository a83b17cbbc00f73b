"""Fixtures of the tests of the runtime."""

from __future__ import annotations

import pytest

from tests.milestones.client.fake_threads import FakeHousekeeper, FakeInstance, FakeThread


@pytest.fixture
def fake_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor gets fakes of all that it drives, as if none had been made before."""
    FakeThread.all, FakeThread.start_error = [], None
    FakeInstance.prepare_error = FakeInstance.close_error = None
    FakeInstance.closed = 0
    for name, fake in {"StreamThread": FakeThread, "Instance": FakeInstance, "Housekeeper": FakeHousekeeper}.items():
        monkeypatch.setattr(f"milestones.client.supervisor.{name}", fake)
