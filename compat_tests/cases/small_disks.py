"""Disks of a few megabytes.

*Guarantees*: nothing else lies on one.
*Assumes*: root, on Linux; else the case is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STATE_UNUSABLE = 4
DISK_MB = 16
FULL, ROOM = "is full: free some space", "has room again"
"""What the log says from m6 on, where a full disk is waited out."""
ROOM_FOR_A_WHILE = 300_000
"""Bytes that are left when the application runs: more than its next commits need."""


class SmallDisk:
    """A file system of its own. Whatever fills it lies in one file."""

    def __init__(self, path: Path) -> None:
        self.path, self._ballast = path, path / "ballast"

    def leave(self, room: int) -> None:
        """Fill it up but for so many bytes."""
        with self._ballast.open("ab") as file:
            file.write(bytes(max(0, shutil.disk_usage(self.path).free - room)))

    def make_room(self) -> None:
        self._ballast.unlink()


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """A disk of a few megabytes, mounted there."""
    path.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("a small disk (tmpfs) is mounted by root only")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk (tmpfs) can be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
