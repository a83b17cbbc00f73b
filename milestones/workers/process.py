"""`WorkerProcess`: one worker as its parent sees it.

*Guarantees*: the worker is in a process group of its own, so that a terminal's Ctrl-C reaches it only through the
parent. No end of a pipe or socket is inherited by another worker.
*Assumes*: the parent's main thread calls the methods. Two threads of each worker only put events into the queue, the
last one if they die.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from milestones.workers.place import VARIABLE, Inherited, WorkerPlace

LAST_MESSAGE_S: Final = 1.0
"""How long the last message of a worker that has ended is waited for. It is there already, unless a process that the
worker has left behind keeps the socket open."""


class WorkerEnded(NamedTuple):
    """A worker's process has ended. `code`: its exit code, or the negative number of the signal that has killed it."""

    worker: int
    code: int


class WorkerSaid(NamedTuple):
    """A worker has sent a message."""

    worker: int
    message: Mapping[str, Any]


class Signalled(NamedTuple):
    """The parent has got a signal."""

    number: int


class ThreadDied(NamedTuple):
    """A thread of the parent has died of an error."""

    name: str
    error: BaseException


Event = WorkerEnded | WorkerSaid | Signalled | ThreadDied
Events = queue.SimpleQueue[Event]


class WorkerProcess:
    """*Owns*: the process, and the parent's end of the socket. `stdout` and `stderr` are the reading ends of the
    worker's pipes, which belong to the `LinePump`."""

    place: WorkerPlace
    stdout: int
    stderr: int

    def __init__(self, place: WorkerPlace, command: Sequence[str], events: Events) -> None:
        """Start the process. Raises `OSError`."""
        self.place, self._events = place, events
        self.sent: set[int] = set()
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            own, their = socket.socketpair()
            ours.callback(own.close)
            theirs.callback(their.close)
            reading, writing = zip(*(os.pipe(), os.pipe()), strict=True)
            for fd in reading:
                ours.callback(os.close, fd)
            for fd in writing:
                theirs.callback(os.close, fd)
            passed = Inherited(place, os.getpid(), their.fileno(), reading)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=writing[0],
                stderr=writing[1],
                pass_fds=(their.fileno(), *reading),
                process_group=0,
                env={"PYTHONUNBUFFERED": "1", **os.environ, VARIABLE: passed.as_variable()},
            )
            ours.pop_all()
        self._socket = own
        self.stdout, self.stderr = reading
        self._listener = self._thread(self._listen)
        self._threads = [self._listener, self._thread(self._await)]

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        name = f"worker-{self.place.number}{work.__name__}"

        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self._events.put(ThreadDied(name, error))

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def _await(self) -> None:
        """Report the end of the process, after its last message."""
        code = self._process.wait()
        self._listener.join(LAST_MESSAGE_S)
        self._events.put(WorkerEnded(self.place.number, code))

    def _listen(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:  # reset: the worker has ended
            for line in lines:
                self._events.put(WorkerSaid(self.place.number, orjson.loads(line)))

    def answer(self, **message: object) -> None:
        """Send an answer. A worker that has ended doesn't get it."""
        with contextlib.suppress(OSError):
            self._socket.sendall(orjson.dumps(message) + b"\n")

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        self.sent.add(number)
        self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Kill the process if it runs still, wait for its end, and close the socket."""
        self.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._socket.close()
