"""Fixtures of the cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.cases.small_disks import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of a few megabytes."""
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted
