"""`WriteGate` refuses the writes to a database while it is shut. The caller repeats a refused write, and doesn't wait.

*Guarantees*: `idle` returns True only when all writes that have passed are over. No write passes while the gate is
shut. Reads need no gate.
*Assumes*: any thread may call. The lock is held only for moments.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milestones.common.errors import StateBusyError

PAUSE_MS: Final = 20
"""A write that a shut gate has refused is repeated after this time."""


class WriteGate:
    """*Owns*: the number of writes under way; the reason to refuse writes. `where` names the database in errors."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._changed = threading.Condition()
        self._writers = 0
        self._reason, self._remedy = "", ""

    @property
    def reason(self) -> str:
        """The reason to refuse writes; empty while the gate is open."""
        return self._reason

    def shut(self, reason: str, remedy: str) -> bool:
        """Refuse all writes from now on. Returns True if the gate was open before."""
        with self._changed:
            was_open = not self._reason
            self._reason, self._remedy = reason, remedy
            return was_open

    def open(self) -> None:
        """Let writes pass once more."""
        with self._changed:
            self._reason = self._remedy = ""

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Let the block write, and count the write until the block ends. Raises `StateBusyError` while the gate is
        shut."""
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
        """Wait until no write is under way, for at most `timeout_ms`. Returns False if one still is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._writers, timeout_ms / 1000)

    def busy(self) -> StateBusyError:
        """Make the error of a refused write."""
        return StateBusyError(self._where, self._reason, self._remedy, PAUSE_MS)
