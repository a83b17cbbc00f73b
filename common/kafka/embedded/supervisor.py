"""A small process that starts the broker, and ends it when the process that uses the broker dies for any reason.

It runs as a script (`python -I -S supervisor.py PARENT_PID [FOLDER]`). It starts one child at a time, and obeys lines
on its standard input, which only the parent can write:

    run {"argv": [...], "output": "file"}   start a child; the answer is `pid N`, and later `exit CODE`
    signal N                                send this signal to the child, if it is running; the answer is
                                            `signalled N`, after SIGSTOP once all threads of the child are stopped

The supervisor cleans up when its input ends, when its parent has died, or after SIGTERM. Then it ends the child, and
deletes `FOLDER` (temporary data) if one was given.

*Guarantees*: no child outlives the parent by more than about a second. On Linux no child outlives the supervisor. With
a `FOLDER` the child is killed and the folder is removed. Without one the child gets `GRACE_S` to shut down cleanly.
A signal to a child that has ended is dropped, and never sent to a later process with the same id.
*Assumes*: one thread, the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from typing import NoReturn

GRACE_S = 20
_PARENT_CHECK_S = 1.0
_PR_SET_PDEATHSIG = 1


class BrokerSupervisor:
    """*Owns*: the child. *Receives*: orders on standard input. *Sends*: events on standard output."""

    def __init__(self, parent: int, folder: str | None) -> None:
        self._parent = parent
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._input = b""
        self._wake, wake_writer = os.pipe()
        for end in (self._wake, wake_writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, _terminated)

    def run(self) -> None:
        """Obey orders until the parent has died or closed the input, then clean up."""
        try:
            while self._orders():
                self._report_exit()
        finally:
            self._clean_up()

    def _orders(self) -> bool:
        ready, _, _ = select.select([0, self._wake], [], [], _PARENT_CHECK_S)
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        # A fork of the parent may keep the input open, so the end of the input alone isn't enough.
        if os.getppid() != self._parent:
            return False
        if 0 not in ready:
            return True
        received = os.read(0, 65536)
        *lines, self._input = (self._input + received).split(b"\n")
        for line in lines:
            self._obey(line.decode())
        return bool(received)

    def _obey(self, line: str) -> None:
        order, _, argument = line.partition(" ")
        if order == "run":
            self._start(json.loads(argument))
        elif order == "signal":
            if self._child is not None:
                self._child.send_signal(int(argument))
                if int(argument) == signal.SIGSTOP:
                    _await_stop(self._child)
            _send(f"signalled {argument}")

    def _start(self, job: dict[str, object]) -> None:
        argv, output = job["argv"], job["output"]
        assert isinstance(argv, list)
        assert isinstance(output, str)
        try:
            with open(output, "ab") as log:  # noqa: PTH123
                self._child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_die_with_supervisor,  # noqa: PLW1509 - there is one thread
                )
        except OSError as error:
            _send(f"failed {error}")
        else:
            _send(f"pid {self._child.pid}")

    def _report_exit(self) -> None:
        if self._child is not None and self._child.poll() is not None:
            code, self._child = self._child.returncode, None
            _send(f"exit {code}")

    def _clean_up(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._child is not None:
            if self._folder is None:
                self._child.terminate()
                self._child.send_signal(signal.SIGCONT)  # a suspended process doesn't handle SIGTERM
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(GRACE_S)
            self._child.kill()
            self._child.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _await_stop(child: subprocess.Popen[bytes]) -> None:
    """Wait until the child is stopped, or has ended. Its end is reported later. On macOS this needs Python 3.13."""
    if hasattr(os, "waitid"):
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _send(event: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, event.encode() + b"\n")


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(0)


def _die_with_supervisor() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    BrokerSupervisor(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None).run()
