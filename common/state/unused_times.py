"""Counts for how long each task's state hasn't been used, over restarts. The cleaner compares this time with its delay.

    <state_dir>/<application_id>/unused.json       {"format": 1, "unused_ms": {"0_1": 540000, ...}}

Only the time counts in which an instance runs on the directory, by its monotonic clock. So state doesn't become old
when the clock is set, nor while no instance runs. After a long stop, tasks still find their state. The file keeps the
count over restarts. So old state is removed even if every run of the instance is shorter than the delay.

*Guarantees*: a use of the state sets its count to zero. There are two exceptions: the machine lost its power, or an
earlier version, which doesn't know the file, used the state. No method here raises an error. If the file is lost, the
counts begin at zero.
*Assumes*: one process at a time. Called from any thread; the lock is held while the small file is written.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from milestones.common.errors import StateError
from milestones.common.state.disk import explained, write_atomically

log: Final = logging.getLogger(__name__)

UNUSED_FILE: Final = "unused.json"
FORMAT: Final = 1


class UnusedTimes:
    """*Owns*: three tables of names. The first has the names in use. The second has the time since when a name has been
    unused, for each name that a cleaner has asked for or that is in the file. The third has the end of the last use in
    this process. Times are those of `now_ms`."""

    def __init__(self, directory: Path, now_ms: Callable[[], int]) -> None:
        """`now_ms`: a clock that doesn't jump when the machine's clock is set."""
        self._path, self._now_ms, self._lock = directory / UNUSED_FILE, now_ms, threading.Lock()
        self._began_ms = now_ms()
        self._written = _read(self._path)
        self._since = {name: self._began_ms - ms for name, ms in self._written.items()}
        self._used_until: dict[str, int] = {}
        self._in_use: set[str] = set()
        self._asked = False

    def since(self, name: str) -> int:
        """Return the time since when the state of this name hasn't been used.

        If it is in use, this is the present time. If this process has used it, this is the end of that use. Otherwise
        the result is the start of the process, minus the unused time that an earlier process has written to the
        file."""
        with self._lock:
            self._asked = True
            if name in self._in_use:
                return self._now_ms()
            return self._since.setdefault(name, self._used_until.get(name, self._began_ms))

    def begin_use(self, name: str) -> None:
        """Note that the state of this name is in use from now on."""
        with self._lock:
            self._in_use.add(name)
            self._forget([name])

    def end_use(self, name: str) -> None:
        """Note that the state of this name isn't in use any more."""
        with self._lock:
            self._in_use.discard(name)
            self._used_until[name] = self._now_ms()

    def forget(self, names: Iterable[str]) -> None:
        """Delete the counts of these names, because their state was removed or is needed."""
        with self._lock:
            self._forget(names)

    def forget_all(self) -> None:
        """Delete all counts, because all state was removed."""
        with self._lock:
            self._forget(list(self._since))

    def _forget(self, names: Iterable[str]) -> None:
        """Delete counts, in the file, too. Called under the lock."""
        gone = set(names)
        for name in gone:
            self._since.pop(name, None)
        if not gone.isdisjoint(self._written):
            self._write({name: ms for name, ms in self._written.items() if name not in gone})

    def record(self) -> None:
        """Write the counts to the file.

        Does nothing if no cleaner has called `since` in this process: then the process is a tool, not an instance."""
        with self._lock:
            if not self._asked:
                return
            now_ms = self._now_ms()
            unused = {name: now_ms - since for name, since in sorted(self._since.items())}
            if unused != self._written:
                self._write(unused)

    def _write(self, unused: dict[str, int]) -> None:
        """Write the counts `unused` to the file. Called under the lock. The file isn't synced, as its loss costs
        little."""
        text = json.dumps({"format": FORMAT, "unused_ms": unused}) + "\n"
        try:
            if unused:
                write_atomically(self._path, text.encode(), sync=False)
            else:
                with explained("remove", self._path):
                    self._path.unlink(missing_ok=True)
        except StateError as error:
            log.warning("the times since when state is unused can't be written, and may be wrong later: %s", error)
        else:
            self._written = unused


def _read(path: Path) -> dict[str, int]:
    try:
        written = json.loads(path.read_bytes())
        if written["format"] != FORMAT:
            return {}
        return {str(name): int(ms) for name, ms in written["unused_ms"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def name_of_store(subtopology: int, store: str) -> str:
    """Return the name under which the unused time of a sub-topology's store is counted (m6). No task has such a
    name."""
    return f"{subtopology}/{store}"
