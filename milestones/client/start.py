"""Decides if a client may start, and if a running start must be cancelled.

    NEW --begin--> STARTING --done--> STARTED
     |  <--failed--   |
   close         close, then failed
     +-------> CLOSED <----+

*Guarantees*: if `close` comes during a start, that start is never `done`. If `close` comes after `done`, the client
accepts requests. A cancelled start releases its resources before the client is closed.
*Assumes*: nothing; any thread may call it. The lock is never held in user code or I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum

from milestones.common.errors import MilestonesError


class StartGivenUpError(Exception):
    """The client was closed during its start."""


class Life(Enum):
    """The phases of a client's life."""

    NEW = "new"
    STARTING = "starting"
    STARTED = "started"
    CLOSED = "closed"


class Start:
    """The state of a start. *Owns*: the client's life. Two threads write it: one that starts the client, and one that
    closes it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._life = Life.NEW
        self._closes = False
        self._ident: int | None = None

    def begin(self, held: ExitStack, undo: Callable[[], object]) -> None:
        """Begin the start, which may be made only once. When `held` is closed, `undo` is called last. Raises a
        `MilestonesError` if the client was started or closed before.
        """
        with self._changed:
            if self._life is not Life.NEW:
                raise MilestonesError(
                    f"start() can be called once, and this client is {self._life.value} already: make another Streams"
                )
            held.callback(undo)
            self._life, self._ident = Life.STARTING, threading.get_ident()

    def go_on(self) -> None:
        """Raise a `StartGivenUpError` if the client was closed during its start."""
        if self._closes:
            raise StartGivenUpError("the client was closed during its start")

    def done(self) -> None:
        """Record that the client has started. From now on the supervisor's thread closes it. `StartGivenUpError` as in
        `go_on`.
        """
        with self._changed:
            self.go_on()
            self._life, self._ident = Life.STARTED, None
            self._changed.notify_all()

    def failed(self, *, may_start_again: bool) -> bool:
        """Record that a failed start has released all its resources. Returns True if the client was closed during the
        start.
        """
        with self._changed:
            self._life, self._ident = Life.NEW if may_start_again and not self._closes else Life.CLOSED, None
            self._changed.notify_all()
            return self._closes

    def close(self) -> Life:
        """Close a client that hasn't started, or cancel its start. Returns the phase in which the client was."""
        with self._changed:
            found = self._life
            if found is Life.NEW:
                self._life = Life.CLOSED
            self._closes = self._closes or found is Life.STARTING
            return found

    def awaited(self) -> bool:
        """Wait for the end of the start. Returns True if the client has started."""
        with self._changed:
            self._changed.wait_for(lambda: self._life is not Life.STARTING)
            return self._life is Life.STARTED

    @property
    def is_mine(self) -> bool:
        """True if the calling thread is itself in the client's start, so that it can't wait for the start's end."""
        return self._ident == threading.get_ident()


class Started:
    """A context manager in whose block the thread runs. At the end of the block, the thread is asked to `end`, and
    awaited. If the thread can't be started, `end` is called, too.
    """

    def __init__(self, thread: threading.Thread, end: Callable[[], object]) -> None:
        self._thread, self._end = thread, end

    def __enter__(self) -> None:
        try:
            self._thread.start()
        except BaseException:
            self._end()
            raise

    def __exit__(self, *_: object) -> None:
        self._end()
        self._thread.join()
