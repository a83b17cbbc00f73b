"""An exclusive lock on a file that ends with its process, and that knows its holder.

The kernel's record locks are bound to the process: a `kill -9` frees them, and a child that lives on doesn't keep
them. They don't exclude threads of one process, hence the table of the locks that this process holds.

*Guarantees*: never waits; a refusal names the holder. A lock file that was removed and created anew can't be held
twice.
*Assumes*: no other code in this process opens a lock file (closing it would free the lock).
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
"""Process id (a forked child inherits the table, not the locks) and owner, by real path. Under `_guard`, which is held
for a few system calls that don't wait."""

_ATTEMPTS = 10


class FileLock:
    """The lock on `path`, held from the constructor until `release`.

    `owner`: the holder's name, for the errors of others; `remedy`: the advice in this caller's own error.
    `StateLockedError`, `StateError`.
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
            with suppress(OSError):  # a full disk doesn't prevent a lock
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
            os.close(file)  # removed by its former holder just now: the locked file has no name any more
        raise StateError(f"can't lock {self.path}: it is removed again and again")

    def _refused(self, holder: str) -> StateLockedError:
        return StateLockedError(f"{self.path.parent} is in use by {holder}; {self._remedy}")

    @property
    def held(self) -> bool:
        """True if `release` wasn't called yet."""
        return self._file is not None

    def release(self) -> None:
        """Harmless when repeated."""
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
