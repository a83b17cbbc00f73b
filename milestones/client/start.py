"""Whether a client may start, and whether a start that is under way is to be given up.

    NEW --begin--> STARTING --done--> STARTED
     |  <--failed--   |
   close         close, then failed
     +-------> CLOSED <----+

*Guarantees*: of two calls at one time one wins: a start that `close` has met is never `done`, and a close that comes
after `done` finds a client that takes requests. What a start has taken is given back before the client is closed.
*Assumes*: nothing; any thread calls it. The lock is never held in user code or I/O.
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
    """How far a client is in its life."""

    NEW = "new"
    STARTING = "starting"
    STARTED = "started"
    CLOSED = "closed"


class Start:
    """*Owns*: the client's life. Two threads write it: the one that starts the client, and one that closes it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._life = Life.NEW
        self._closes = False
        self._ident: int | None = None

    def begin(self, held: ExitStack, undo: Callable[[], object]) -> None:
        """Begin the only start; when `held` is closed, `undo` is called last. `MilestonesError` when there was one."""
        with self._changed:
            if self._life is not Life.NEW:
                raise MilestonesError(
                    f"start() can be called once, and this client is {self._life.value} already: make another Streams"
                )
            held.callback(undo)
            self._life, self._ident = Life.STARTING, threading.get_ident()

    def go_on(self) -> None:
        """`StartGivenUpError` when the client was closed meanwhile."""
        if self._closes:
            raise StartGivenUpError("the client was closed during its start")

    def done(self) -> None:
        """The client has started: from now on its own thread closes it. `StartGivenUpError` as in `go_on`."""
        with self._changed:
            self.go_on()
            self._life, self._ident = Life.STARTED, None
            self._changed.notify_all()

    def failed(self, *, may_start_again: bool) -> bool:
        """The start has given back all that it had taken. Whether the client was closed meanwhile."""
        with self._changed:
            self._life, self._ident = Life.NEW if may_start_again and not self._closes else Life.CLOSED, None
            self._changed.notify_all()
            return self._closes

    def close(self) -> Life:
        """Close a client that hasn't started, or have its start given up; what was found."""
        with self._changed:
            found = self._life
            if found is Life.NEW:
                self._life = Life.CLOSED
            self._closes = self._closes or found is Life.STARTING
            return found

    def awaited(self) -> bool:
        """Whether the client has started; waits for the end of its start."""
        with self._changed:
            self._changed.wait_for(lambda: self._life is not Life.STARTING)
            return self._life is Life.STARTED

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is in the client's start: it can't wait for the start's end."""
        return self._ident == threading.get_ident()


class Started:
    """A context manager: the thread runs, until it is asked to `end`, and awaited. One that can't run is ended."""

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
