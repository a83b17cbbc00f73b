"""Locks a data directory, so that only one broker uses it.

*Guarantees*: the lock is released when the last process that has the file open ends, for whatever reason.
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

# After the death of its owner, a broker needs a moment to shut down.
PATIENCE_S = 5.0
_PAUSE_S = 0.05


@contextmanager
def locked(path: Path, patience_s: float = PATIENCE_S) -> Iterator[int]:
    """Open and lock the file `path`. Returns its descriptor, as a context. A child process that has inherited the
    descriptor keeps the lock after the block."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + patience_s
        while not _try(file):
            if time.monotonic() >= deadline:
                raise DataDirInUseError(
                    f"a running broker uses the data directory {path.parent}: end that, or choose another directory"
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
