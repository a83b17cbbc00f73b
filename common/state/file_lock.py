"""An exclusive lock on a file. The kernel frees it when the process ends. The file contains the holder's name.

The kernel's record locks belong to the process: a `kill -9` frees them, and a child process that survives doesn't keep
them. But they don't exclude threads of the same process. So a table lists the locks that this process holds.

*Guarantees*: the constructor never waits, and its error names the holder. If a lock file is removed and created anew,
two holders can't have the lock.
*Assumes*: no other code in this process opens a lock file, because closing the file would free the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from milestones.common.errors import StateError, StateLockedError
from milestones.common.state.disk import explained

_guard = threading.Lock()
_held: dict[str, tuple[int, str]] = {}
"""The process id and the owner of each lock, keyed by the lock file's real path. The process id is needed, because a
forked child inherits the table and not the locks. `_guard` guards the table, for a few system calls that don't wait."""

_ATTEMPTS = 10


class FileLock:
    """The lock on `path`, held from the constructor until `release`.

    `owner`: the name of this holder, which the errors of other callers show. `remedy`: the advice at the end of this
    caller's own error text. Raises `StateLockedError` or `StateError`.
    """

    def __init__(self, path: Path, owner: str, remedy: str) -> None:
        self.path = path
        self._key = os.path.realpath(path)
        self._remedy = remedy
        with _guard, explained("lock", path):
            process, holder = _held.get(self._key, (0, ""))
            if process == os.getpid():
                raise self._refused(f"this process ({process}): {holder}")
            self._file: int | None = self._lock()
            _held[self._key] = (os.getpid(), owner)
            with suppress(OSError):  # if the disk is full, the file has no name of a holder, but the lock is held
                os.ftruncate(self._file, 0)
                told = {"pid": os.getpid(), "host": socket.gethostname(), "owner": owner}
                os.pwrite(self._file, json.dumps(told).encode(), 0)

    def _lock(self) -> int:
        for _ in range(_ATTEMPTS):
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.exists(self.path) and os.path.samestat(os.fstat(file), os.stat(self.path)):  # noqa: PTH110, PTH116
                    return file
            except (BlockingIOError, PermissionError):
                holder = _holder(os.pread(file, 1000, 0))
                os.close(file)
                raise self._refused(holder) from None
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # the former holder has just removed the file, so that the lock is on a deleted file
        raise StateError(f"can't lock {self.path}: another process keeps removing the file")

    def _refused(self, holder: str) -> StateLockedError:
        return StateLockedError(f"{self.path.parent} is in use by {holder}; {self._remedy}")

    @property
    def held(self) -> bool:
        """True until `release` is called."""
        return self._file is not None

    def release(self) -> None:
        """Free the lock. A second call does nothing."""
        with _guard:
            if self._file is None:
                return
            file, self._file = self._file, None
            _held.pop(self._key, None)
            os.close(file)


def _holder(written: bytes) -> str:
    try:
        told = json.loads(written)
        return f"process {told['pid']} on {told['host']}: {told['owner']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
