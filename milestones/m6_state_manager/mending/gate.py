"""`WriteGate`: whether a database takes writes. A shut one turns a write into "later", and no thread waits for it.

*Guarantees*: a write that has passed is over before `idle` says so; none passes while the gate is shut. Reads need no
gate.
*Assumes*: called from any thread; its lock is held for moments.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milestones.common.errors import StateBusyError

PAUSE_MS: Final = 20
"""After this time a write that a shut gate has refused is made again."""


class WriteGate:
    """*Owns*: how many writes are under way, and why none may pass. `where`: the database, for errors."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._changed = threading.Condition()
        self._writers = 0
        self._reason, self._remedy = "", ""

    @property
    def reason(self) -> str:
        """Why no write passes; empty while the gate is open."""
        return self._reason

    def shut(self, reason: str, remedy: str) -> bool:
        """Let no write pass from now on; whether the gate was open before."""
        with self._changed:
            was_open = not self._reason
            self._reason, self._remedy = reason, remedy
            return was_open

    def open(self) -> None:
        """Let writes pass."""
        with self._changed:
            self._reason = self._remedy = ""

    @contextmanager
    def passed(self) -> Iterator[None]:
        """The block is a write. `StateBusyError` while the gate is shut."""
        with self._changed:
            if self._reason:
                raise self.busy()
            self._writers += 1
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    def idle(self, timeout_ms: int) -> bool:
        """Whether no write is under way any more, within `timeout_ms`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._writers, timeout_ms / 1000)

    def busy(self) -> StateBusyError:
        """The error of a write that is refused."""
        return StateBusyError(self._where, self._reason, self._remedy, PAUSE_MS)
