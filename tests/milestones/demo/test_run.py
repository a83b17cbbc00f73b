"""What the demo refuses before it starts anything."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from milestones.demo import run


def refused(**arguments: object) -> tuple[int, str]:
    """Exit code and output of a run that must not come to start a broker."""
    console = Console(file=io.StringIO(), width=200)
    code = run(console, **arguments)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return code, console.file.getvalue()


def test_no_line_at_all_is_refused() -> None:
    code, text = refused(lines=0)
    assert code == 1
    assert "at least one line" in text


def test_an_unknown_stage_is_refused_as_bad_config() -> None:
    code, text = refused(stage="m9")
    assert code == 2
    assert "m9" in text


def test_a_folder_that_is_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    code, text = refused(folder=tmp_path, lines=1)
    assert code == 1
    assert "not empty" in text
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
