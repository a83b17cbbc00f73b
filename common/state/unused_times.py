"""For how long state hasn't been used, also over restarts: what the cleaner's delay is compared with.

    <state_dir>/<application_id>/unused.json       {"format": 1, "unused_ms": {"0_1": 540000, ...}}

Only the time counts for which an instance has run on the directory, by its monotonic clock. So setting the clock ages
no state. Nor does the time for which no instance runs: tasks find their state afterwards. And restarts that are more
frequent than the delay don't keep old state for ever.

*Guarantees*: what was used doesn't count as unused from before, unless the machine lost its power, or an earlier
version has used it in between, which doesn't know the file. Nothing here raises: the file is a hint, whose loss has
the delay begin anew.
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
    """*Owns*: the names of what is in use; since when each other name has been unused that a cleaner has asked for, or
    the file has; when the use of the rest has ended in this process. Times are those of `now_ms`."""

    def __init__(self, directory: Path, now_ms: Callable[[], int]) -> None:
        """`now_ms`: a clock that doesn't jump."""
        self._path, self._now_ms, self._lock = directory / UNUSED_FILE, now_ms, threading.Lock()
        self._began_ms = now_ms()
        self._written = _read(self._path)
        self._since = {name: self._began_ms - ms for name, ms in self._written.items()}
        self._used_until: dict[str, int] = {}
        self._in_use: set[str] = set()
        self._asked = False

    def since(self, name: str) -> int:
        """Since when what has this name hasn't been used: the end of its last use in this process; else the start of
        this process, less what `record` has written down before. Now, while it is in use."""
        with self._lock:
            self._asked = True
            if name in self._in_use:
                return self._now_ms()
            return self._since.setdefault(name, self._used_until.get(name, self._began_ms))

    def begin_use(self, name: str) -> None:
        """What has this name is in use from now on."""
        with self._lock:
            self._in_use.add(name)
            self._forget([name])

    def end_use(self, name: str) -> None:
        """What has this name isn't in use any more."""
        with self._lock:
            self._in_use.discard(name)
            self._used_until[name] = self._now_ms()

    def forget(self, names: Iterable[str]) -> None:
        """What has these names is no old state: it is gone, or needed."""
        with self._lock:
            self._forget(names)

    def forget_all(self) -> None:
        """There is no old state any more."""
        with self._lock:
            self._forget(list(self._since))

    def _forget(self, names: Iterable[str]) -> None:
        """Called under the lock."""
        gone = set(names)
        for name in gone:
            self._since.pop(name, None)
        if not gone.isdisjoint(self._written):
            self._write({name: ms for name, ms in self._written.items() if name not in gone})

    def record(self) -> None:
        """Write down for how long all has been unused that was asked for. Nothing, if no cleaner has asked: this is no
        instance's process."""
        with self._lock:
            if not self._asked:
                return
            now_ms = self._now_ms()
            unused = {name: now_ms - since for name, since in sorted(self._since.items())}
            if unused != self._written:
                self._write(unused)

    def _write(self, unused: dict[str, int]) -> None:
        """Called under the lock. The file isn't synced: its loss costs little."""
        text = json.dumps({"format": FORMAT, "unused_ms": unused}) + "\n"
        try:
            if unused:
                write_atomically(self._path, text.encode(), sync=False)
            else:
                with explained("remove", self._path):
                    self._path.unlink(missing_ok=True)
        except StateError as error:
            log.warning("for how long old state isn't used can't be written down, and may count wrongly: %s", error)
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
    """The name of a sub-topology's store here, which is no task's."""
    return f"{subtopology}/{store}"
