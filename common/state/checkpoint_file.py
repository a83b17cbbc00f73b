"""The checkpoint file of a task directory: the changelog offsets of its stores, for readers that don't open the stores.

The file is written when a task is closed, and from time to time while the task is open. The file is always written
after the stores. So once the process has ended, even by `kill -9`, the file's offsets are lower bounds of the stores'
offsets. After a power loss the file's offsets may be too high, because neither the file nor the stores are synced. If a
store's files are replaced, the checkpoint file is removed.

*Guarantees*: reading never fails: a file that can't be parsed counts as absent. `Checkpoints` reads each file once.
*Assumes*: the thread that writes holds the task's lock. The offsets are only a hint for the assignor. If they are
wrong, it may choose an instance that has more to restore. No restoration depends on them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from milestones.common.records import TaskId
from milestones.common.state.disk import explained, write_atomically
from milestones.common.state.manifest import UNREADABLE

POSITIONS_FILE = "positions.json"
FORMAT = 1


def write(directory: Path, offsets: Mapping[str, int]) -> None:
    """Write these changelog offsets, keyed by store. Raises `StateError`. The file isn't synced, as its loss costs
    little."""
    text = json.dumps({"format": FORMAT, "offsets": dict(offsets)}) + "\n"
    write_atomically(directory / POSITIONS_FILE, text.encode(), sync=False)


def read(directory: Path) -> dict[str, int]:
    """Return the changelog offsets in the directory's file, keyed by store. Empty if there is no readable file."""
    try:
        written = json.loads((directory / POSITIONS_FILE).read_bytes())
        return msgspec.convert(written["offsets"], dict[str, int]) if written["format"] == FORMAT else {}
    except (OSError, *UNREADABLE):
        return {}


def forget(directory: Path) -> None:
    """Remove the file, because a store's content is replaced. Does nothing if there is no file. Raises
    `StateError`."""
    with explained("remove", directory / POSITIONS_FILE):
        (directory / POSITIONS_FILE).unlink(missing_ok=True)


class Checkpoints:
    """The checkpoint files of an instance's tasks. The offsets of all files are also in memory, for threads that may
    not do I/O.

    *Owns*: the offsets of each task that has state on the disk. *Concurrency*: any thread may call the methods; the
    lock isn't held during I/O."""

    def __init__(self, path_of: Callable[[TaskId], Path], tasks: Iterable[TaskId]) -> None:
        """Read the files of these tasks. `path_of` returns a task's directory."""
        self._path_of, self._lock = path_of, threading.Lock()
        self._known: dict[TaskId, Mapping[str, int]] = {task: read(path_of(task)) for task in tasks}

    def known(self) -> dict[TaskId, Mapping[str, int]]:
        """Return the offsets of each task that has state on the disk. A task without a file has an empty mapping."""
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
        """Write the task's file. Raises `StateError`."""
        write(self._path_of(task), offsets)
        self._note(task, offsets)

    def forget(self, task: TaskId) -> None:
        """Remove the task's file. Raises `StateError`."""
        forget(self._path_of(task))
        self._note(task, {})

    def _note(self, task: TaskId, offsets: Mapping[str, int]) -> None:
        with self._lock:
            self._known[task] = dict(offsets)
