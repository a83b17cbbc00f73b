"""`DiskRoom` does what the setting `state_full` says when the disk is full, and logs that the disk is full.

    state_full="wait": the write is made later, however long it takes      "stop": the client ends, with the error
    logged once when a disk becomes full, with its directory and what to do, and once when the disk has room once more

*Guarantees*: a database that refuses writes for `STUCK_MS` although its disk has room is reported as stuck. After a
full disk, one of the engines refuses all writes until its database is closed and opened.
*Assumes*: any thread may call. Two threads that find the same at the same time may both log it.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING, Final

from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import StateBusyError, StateFullError
from milestones.common.state.engines.rocks import FULL_PAUSE_MS, ROOM
from milestones.instance.context import UncaughtExceptionResponse
from milestones.parts import DecidedError

if TYPE_CHECKING:
    from pathlib import Path

log: Final = logging.getLogger(__name__)

STUCK_MS: Final = 10_000
ENOUGH_BYTES: Final = 8 * 1024 * 1024


class DiskRoom:
    """*Owns*: the directories to which writes are refused, and since when. `stops`: a full disk ends the client."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self.stops: bool = False
        self._full: dict[Path, int] = {}
        self._room_since_ms: dict[Path, int] = {}

    def refused(self, path: Path, *, waits: bool = True) -> None:
        """Note that the disk has no room for a write to the database in `path`. Raises `DecidedError` when a full disk
        ends the client, unless the write can wait (`waits`)."""
        if path not in self._full:
            self._full[path] = self._clock.monotonic_ms()
            does = "the client ends (state_full='stop')" if self.stops else "its tasks wait (state_full='wait')"
            log.error("the disk of %s is full: %s; %s", path, ROOM, does)
        if self.stops and not waits:
            error = StateFullError(f"disk full: the state in {path} can't be written: {ROOM}")
            raise DecidedError(error, UncaughtExceptionResponse.SHUTDOWN_CLIENT)

    @staticmethod
    def busy(path: Path) -> StateBusyError:
        """Make the error of a write that is repeated later. After a full disk an engine may name other reasons."""
        busy = StateBusyError(f"the state in {path}", "the disk is full, or was", ROOM, FULL_PAUSE_MS, full=True)
        busy.told = True
        return busy

    def written(self, path: Path) -> None:
        """Note that a write was made."""
        since_ms = self._full.pop(path, None)
        if since_ms is not None:
            self._room_since_ms.pop(path, None)
            took_s = (self._clock.monotonic_ms() - since_ms) // 1000
            log.warning("the disk of %s has room again, after %d s", path, took_s)

    def full(self) -> list[Path]:
        """Return the directories whose last write found no room."""
        return list(self._full)

    def is_full(self, path: Path) -> bool:
        """Return whether the last write to this directory found no room."""
        return path in self._full

    def is_stuck(self, path: Path) -> bool:
        """Return whether writes are refused although the disk has had room for `STUCK_MS`. The caller asks regularly,
        as the time counts from a call that finds room."""
        if path not in self._full or not _has_room(path):
            self._room_since_ms.pop(path, None)
            return False
        now_ms = self._clock.monotonic_ms()
        return now_ms - self._room_since_ms.setdefault(path, now_ms) >= STUCK_MS


def _has_room(path: Path) -> bool:
    try:
        return shutil.disk_usage(path).free >= ENOUGH_BYTES
    except OSError:
        return False
