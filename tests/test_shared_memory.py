"""Tests keep their files in memory only where that has room."""

from __future__ import annotations

from pathlib import Path

from tests.shared_memory import roomy


def test_a_folder_with_room_is_used_and_one_with_less_or_that_is_not_there_is_not(tmp_path: Path) -> None:
    assert roomy(tmp_path, 1) == tmp_path
    assert roomy(tmp_path, 1 << 62) is None
    assert roomy(tmp_path / "missing", 1) is None
