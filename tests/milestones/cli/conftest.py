"""What tests of the command line need: an application, no settings of the machine, the text of a panel."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

WORDS = """
from milestones import Streams, StreamsBuilder, serdes
builder = StreamsBuilder()
builder.stream("lines", value=serdes.STRING).map_values(str.upper).to("shouts", value=serdes.STRING)
"""


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.py"
    path.write_text(WORDS)
    return path


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither variables of the machine, nor a logging set-up that outlives the test."""
    for name in list(os.environ):
        if name.startswith("MILESTONES_"):
            monkeypatch.delenv(name)
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def plain(text: str) -> str:
    """Without the frame and the lines' ends of a panel."""
    return " ".join(text.replace("│", " ").split())
