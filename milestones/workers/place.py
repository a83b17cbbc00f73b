"""`WorkerPlace`: which worker a process is, of how many, and of which command.

*Guarantees*: only a process that a parent has started as its worker finds a place. A process that a worker starts isn't
a worker, although it inherits the environment.
*Assumes*: the parent is on the same machine, and runs until the worker has ended. If it doesn't, the worker ends.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

VARIABLE: Final = "_MILESTONES_WORKER"
"""The environment variable that makes a process a worker. Its name doesn't begin with `MILESTONES_`, because it is no
setting."""
MOST: Final = 1024
"""The largest number of workers of a command."""

COUNTS_PARTITIONS: Final = 0
"""The number of a process that only counts partitions for its parent."""
ORPHANED: Final = 1
"""The exit code of a worker whose parent is gone."""

_PLACE = re.compile(r"(\d{1,4})/(\d{1,4})")


@dataclass(frozen=True)
class WorkerPlace:
    """`number`: from 1, or `COUNTS_PARTITIONS`. `count`: the number of all workers. `command`: an id that only the
    workers of one parent share, empty without a parent."""

    number: int
    count: int
    command: str = ""

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def label(self) -> str:
        """The text that stands in front of this worker's lines."""
        return "[auto]" if self.number == COUNTS_PARTITIONS else f"[{self}]"

    @classmethod
    def parse(cls, text: str, command: str = "") -> WorkerPlace:
        """Parse a place such as `2/4`. Raises `ValueError`."""
        match = _PLACE.fullmatch(text)
        number, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not COUNTS_PARTITIONS <= number <= count or not 1 <= count <= MOST:
            raise ValueError(f"{text!r} isn't a worker's place, such as 2/4")
        return cls(number, count, command)


@dataclass(frozen=True)
class Inherited:
    """What a worker inherits from its parent: its place, the socket to the parent, and the reading ends of its own
    stdout and stderr. It keeps these ends open, so that printing never fails, even if the parent has been killed."""

    place: WorkerPlace
    parent: int
    socket: int
    kept: tuple[int, ...]

    def as_variable(self) -> str:
        fields = (self.place, self.place.command, self.parent, self.socket, *self.kept)
        return " ".join(map(str, fields))


def inherited(environment: Mapping[str, str] | None = None) -> Inherited | None:
    """Return what this process inherits as a worker, or None if it isn't one. Ends the process if it is a worker whose
    parent is gone."""
    text = (os.environ if environment is None else environment).get(VARIABLE)
    if not text:
        return None
    place, command, *numbers = text.split()
    parent, fd, *kept = map(int, numbers)
    found = Inherited(WorkerPlace.parse(place, command), parent, fd, tuple(kept))
    if os.getppid() == parent:
        return found
    if _is_closed_socket(fd):
        os._exit(ORPHANED)
    return None  # a program that a worker has started


def _is_closed_socket(fd: int) -> bool:
    """True if `fd` is a local socket whose other end is closed."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(fd)) as found:
            return found.family == socket.AF_UNIX and found.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except OSError:
        return False
