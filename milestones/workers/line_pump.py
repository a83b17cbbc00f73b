"""`LinePump`: the thread that passes the workers' lines on.

*Guarantees*: a line is written as a whole, with its worker's label in front. A worker never waits for another one's
lines. If the parent's own output is closed, the lines are dropped, and no worker waits.
*Assumes*: lines of up to `LONGEST` bytes. A longer one is cut into several lines.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

CHUNK: Final = 64 * 1024
LONGEST: Final = 1024 * 1024
MOST_CHUNKS: Final = 32
"""The number of chunks that are read of one pipe before others have their turn. It is more than a full pipe has."""
SETTLE_S: Final = 2.0
"""The longest time that the parent waits until waiting lines are written."""
LABELLED: Final = b'{"worker":'
"""The beginning of a line that names its worker itself: an event of the log in JSON. It gets no label, so that it stays
JSON."""


@dataclass
class _Source:
    label: bytes
    sink: int
    rest: bytes = b""

    def lines(self, data: bytes) -> bytes:
        """Return the whole lines that `data` completes."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        while len(self.rest) > LONGEST:
            lines.append(self.rest[:LONGEST])
            self.rest = self.rest[LONGEST:]
        return b"".join(map(self._labelled, lines))

    def last(self) -> bytes:
        """Return what is left at the end of the file."""
        rest, self.rest = self.rest, b""
        return self._labelled(rest) if rest else b""

    def _labelled(self, line: bytes) -> bytes:
        return (line if line.startswith(LABELLED) else self.label + line) + b"\n"


class LinePump(threading.Thread):
    """*Owns*: the reading ends of the workers' pipes, and what is written to the sinks. *Receives*: bytes; a request to
    settle or to end. *Sends*: whole lines to the sinks."""

    def __init__(self, died: Callable[[BaseException], None]) -> None:
        """`died`: called by the thread if it dies of an error."""
        super().__init__(name="lines", daemon=True)
        self._died = died
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake = os.pipe()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._guard = threading.Lock()
        self._added: list[tuple[int, _Source]] = []
        self._settled: list[threading.Event] = []
        self._ends = False
        self._closed_sinks = set[int]()

    def add(self, fd: int, label: str, sink: int) -> None:
        """Pass on the lines that come from `fd`, which belongs to the pump from now on."""
        os.set_blocking(fd, False)
        with self._guard:
            self._added.append((fd, _Source(f"{label} ".encode(), sink)))
        self._ask()

    def settle(self) -> None:
        """Wait until the lines that wait now are written, or until `SETTLE_S` is over."""
        settled = threading.Event()
        with self._guard:
            self._settled.append(settled)
        self._ask()
        settled.wait(SETTLE_S)

    def close(self) -> None:
        """Pass on all lines that wait, also incomplete ones, and end. If no process reads the parent's output, the
        thread is left behind."""
        self._ends = True
        self._ask()
        self.join(SETTLE_S)
        if not self.is_alive():
            os.close(self._wake)

    def _ask(self) -> None:
        os.write(self._wake, b".")

    def run(self) -> None:
        try:
            self._pump()
        except BaseException as error:  # the workers would wait for ever with their next lines
            self._died(error)

    def _pump(self) -> None:
        while not self._ends:
            for key, _ in self._selector.select():
                if key.fd == self._waker:
                    os.read(self._waker, CHUNK)
                else:
                    self._pass_on(key.fd, key.data)
            self._take_requests()
        self._read_all()
        for key in list(self._selector.get_map().values()):
            if key.fd != self._waker:
                self._end(key.fd, key.data)
        self._selector.close()
        os.close(self._waker)

    def _take_requests(self) -> None:
        with self._guard:
            added, self._added = self._added, []
            settled, self._settled = self._settled, []
        for fd, source in added:
            self._selector.register(fd, selectors.EVENT_READ, source)
        if settled:
            self._read_all()
        for event in settled:
            event.set()

    def _read_all(self) -> None:
        """Pass on everything that waits now. A process that goes on printing doesn't keep this from ending."""
        for key in list(self._selector.get_map().values()):
            left = MOST_CHUNKS if key.fd != self._waker else 0
            while left and self._pass_on(key.fd, key.data):
                left -= 1

    def _pass_on(self, fd: int, source: _Source) -> bool:
        """Pass on the next bytes. Returns False if there are none."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._end(fd, source)
            return False
        self._write(source.sink, source.lines(data))
        return True

    def _end(self, fd: int, source: _Source) -> None:
        self._write(source.sink, source.last())
        self._selector.unregister(fd)
        os.close(fd)

    def _write(self, sink: int, data: bytes) -> None:
        left = memoryview(data)
        while left and sink not in self._closed_sinks:
            try:
                left = left[os.write(sink, left) :]
            except BlockingIOError:
                select.select([], [sink], [])
            except OSError:  # nobody reads any more
                self._closed_sinks.add(sink)


def flush_own_output() -> None:
    """Write what this process has printed so far, so that it comes before the workers' lines."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
