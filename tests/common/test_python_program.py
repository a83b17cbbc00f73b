"""Programs that are frozen, as by PyInstaller: nothing starts the program once more in place of a Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from milestones.common.kafka.embedded.errors import EmbeddedKafkaError
from milestones.common.kafka.embedded.process import SupervisedProcess
from milestones.common.python_program import python
from milestones.m6_state_manager.conversion.helpers import Helpers
from milestones.m6_state_manager.processes import begin


def test_a_python_is_the_one_that_runs_this() -> None:
    assert python("a test") == sys.executable


@pytest.fixture(params=["frozen", "without a path"])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that this program would write if it were started once more."""
    started = tmp_path / "started"
    itself = tmp_path / "program"
    itself.write_text(f"#!/bin/sh\ntouch {started}\n")
    itself.chmod(0o755)
    if request.param == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        monkeypatch.setattr(sys, "executable", str(itself))
    else:
        monkeypatch.setattr(sys, "executable", "")
    return started


def test_a_helper_process_of_a_frozen_program_is_refused_and_the_program_isn_t_started_again(program: Path) -> None:
    with pytest.raises(OSError, match="needs a Python"):
        begin("milestones.m6_state_manager.conversion.process")
    with pytest.raises(EmbeddedKafkaError, match="use a Kafka that runs"):
        SupervisedProcess()
    assert not program.exists()


def test_a_conversion_in_a_frozen_program_has_no_helpers(program: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Helpers(3):
        assert "a conversion has 0 of 3 helper processes" in caplog.text
    assert not program.exists()
