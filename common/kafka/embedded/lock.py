"""A data directory belongs to one broker.

*Guarantees*: the lock ends with the last process that holds the open file, however it ends.
*Assumes*: a local file system with `flock`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milestones.common.kafka.embedded.errors import DataDirInUseError

# A broker whose owner has just died needs a moment to shut down.
PATIENCE_S = 5.0
_PAUSE_S = 0.05


@contextmanager
def locked(path: Path, patience_s: float = PATIENCE_S) -> Iterator[int]:
    """The open, locked file `path`; a process that inherited it keeps the lock beyond this block."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + patience_s
        while not _try(file):
            if time.monotonic() >= deadline:
                raise DataDirInUseError(
                    f"the data directory {path.parent} belongs to a broker that runs: end that, or choose another"
                )
            time.sleep(_PAUSE_S)
        yield file
    finally:
        os.close(file)


def _try(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
