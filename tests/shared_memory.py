"""Where tests keep their files: in shared memory, where there is room for them. RocksDB syncs ten times to make a
database, and thousands are made.

*Guarantees*: a folder in which programs may be executed, and which had `ROOM` when it was looked at; else None.
"""

from __future__ import annotations

import os
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ROOM = 1 << 30
"""Bytes; a container's own 64 MB don't do."""


def roomy(folder: Path = SHARED_MEMORY, room: int = ROOM) -> Path | None:
    """The folder, if tests may keep their files there."""
    if not os.access(folder, os.W_OK):
        return None
    system = os.statvfs(folder)
    executes = not system.f_flag & getattr(os, "ST_NOEXEC", 0)
    return folder if executes and system.f_bavail * system.f_frsize >= room else None
