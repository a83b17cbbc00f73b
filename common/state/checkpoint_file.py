"""The checkpoint file of a task directory: the changelog offsets of the stores, known without opening them.

The file is written when a task is closed, and now and then while the task is open, after the stores. So its offsets are
lower bounds after the end of the process, also after `kill -9`. After a power loss they may be too high, as neither
file nor stores are synced. A store that is emptied takes the file away.

*Guarantees*: reading never fails: a file that can't be understood counts as absent. `Checkpoints` reads each file once.
*Assumes*: the thread that writes holds the task's lock. The offsets are a hint for the assignor, which at worst chooses
an instance that has more to restore: no restoration depends on them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from milestones.common.records import TaskId
from milestones.common.state.disk import explained, write_atomically

POSITIONS_FILE = "positions.json"
FORMAT = 1


def write(directory: Path, offsets: Mapping[str, int]) -> None:
    """Write these changelog offsets, by store. `StateError`. The file isn't synced: its loss costs little."""
    text = json.dumps({"format": FORMAT, "offsets": dict(offsets)}) + "\n"
    write_atomically(directory / POSITIONS_FILE, text.encode(), sync=False)


def read(directory: Path) -> dict[str, int]:
    """The changelog offsets by store; empty when none are known."""
    try:
        written = json.loads((directory / POSITIONS_FILE).read_bytes())
        if written["format"] != FORMAT:
            return {}
        return {str(store): int(offset) for store, offset in written["offsets"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def forget(directory: Path) -> None:
    """Remove the file, as a store's content is replaced. `StateError`. Harmless when there is no file."""
    with explained("remove", directory / POSITIONS_FILE):
        (directory / POSITIONS_FILE).unlink(missing_ok=True)


class Checkpoints:
    """The checkpoint files of an instance's tasks, and what they say, for threads that may not read a file.

    *Owns*: the offsets by task that has state on the disk. *Concurrency*: called by any thread; the lock is never held
    over I/O."""

    def __init__(self, path_of: Callable[[TaskId], Path], tasks: Iterable[TaskId]) -> None:
        """Read the files of these tasks. `path_of`: a task's directory."""
        self._path_of, self._lock = path_of, threading.Lock()
        self._known: dict[TaskId, Mapping[str, int]] = {task: read(path_of(task)) for task in tasks}

    def known(self) -> dict[TaskId, Mapping[str, int]]:
        """By task that has state on the disk, the offsets in its file; none where there is no file."""
        with self._lock:
            return dict(self._known)

    def add(self, task: TaskId) -> None:
        """Note that the task has state on the disk."""
        with self._lock:
            self._known.setdefault(task, {})

    def remove(self, task: TaskId) -> None:
        """Note that the task's directory was removed."""
        with self._lock:
            self._known.pop(task, None)

    def write(self, task: TaskId, offsets: Mapping[str, int]) -> None:
        """Write the task's file. `StateError`."""
        write(self._path_of(task), offsets)
        self._note(task, offsets)

    def forget(self, task: TaskId) -> None:
        """Remove the task's file. `StateError`."""
        forget(self._path_of(task))
        self._note(task, {})

    def _note(self, task: TaskId, offsets: Mapping[str, int]) -> None:
        with self._lock:
            self._known[task] = dict(offsets)
