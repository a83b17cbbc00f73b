"""A child process that cannot outlive us, through a supervisor (`supervisor.py`).

*Guarantees*: after `close`, or our death in any way, the child is gone and reaped. Signals go only to our own child.
*Assumes*: used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from milestones.common.kafka.embedded import supervisor
from milestones.common.kafka.embedded.errors import EmbeddedKafkaError
from milestones.common.python_program import python


class SupervisedProcess:
    """Runs one child at a time. Owns the supervisor and the pipes to it.

    `folder`: temporary data, deleted with the end of the supervision. `lock`: an open, locked file; the supervisor
    holds the lock until the last child has ended, the caller may close its own copy at once.
    """

    def __init__(self, folder: Path | None = None, lock: int | None = None) -> None:
        script = str(Path(supervisor.__file__).resolve())
        try:
            executable = python("a broker of one's own")
        except OSError as error:
            raise EmbeddedKafkaError(f"{error}; use a Kafka that runs") from error
        argv = [executable, "-I", "-S", script, str(os.getpid()), *([str(folder)] if folder else [])]
        self._supervisor = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in our terminal is ours to answer
            pass_fds=() if lock is None else (lock,),
            cwd="/",
        )
        self._owner = os.getpid()
        self._received = b""
        self._signalled = False
        self._events = self._pipe(self._supervisor.stdout)
        self.pid: int | None = None
        self.exit_code: int | None = None

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> int:
        assert pipe is not None
        return pipe.fileno()

    def run(self, argv: Sequence[str], output: Path) -> None:
        """Start `argv`; its output is appended to the file `output`. Raises when it can't be started."""
        if self.running:
            raise EmbeddedKafkaError(f"process {self.pid} still runs: stop it before starting another")
        self.pid = self.exit_code = None
        self._order("run " + json.dumps({"argv": list(argv), "output": str(output)}))
        while not self._answered():
            self.poll(None)

    def _answered(self) -> bool:
        return self.pid is not None or self.exit_code is not None

    @property
    def closed(self) -> bool:
        """True if the supervisor is gone, by `close` or by itself: nothing can be run any more."""
        return self._events < 0

    @property
    def running(self) -> bool:
        """True if the child runs, as far as is known without asking the system twice."""
        if self.pid is not None:
            self.poll(0)
        return self.pid is not None

    def poll(self, timeout_s: float | None) -> int | None:
        """Wait until something happens to the child, at most `timeout_s` (None: for ever); its exit code, if any."""
        if not self.closed and select.select([self._events], [], [], timeout_s)[0]:
            received = os.read(self._events, 65536)
            if not received:
                self._lost()
            *lines, self._received = (self._received + received).split(b"\n")
            for line in lines:
                self._event(line.decode())
        return self.exit_code

    def wait(self, timeout_s: float | None) -> int | None:
        """The child's exit code, once it has ended; None when it has not within `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.running:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self.poll(left)
        return self.exit_code

    def signal(self, number: signal.Signals) -> None:
        """Send the child a signal; returns when it is sent. Nothing happens when the child has ended."""
        if not self.running:
            return
        self._signalled = False
        self._order(f"signal {int(number)}")
        while not self._signalled and not self.closed:
            self.poll(None)

    def close(self) -> None:
        """End the child, delete the folder, reap the supervisor. May be called twice."""
        if os.getpid() != self._owner or self.closed:
            return
        self._events = -1
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._supervisor.stdin.close()
        try:
            self._supervisor.wait(supervisor.GRACE_S + 10)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self._supervisor.stdout.close()
        self.pid = None

    def _order(self, line: str) -> None:
        try:
            assert self._supervisor.stdin is not None
            self._supervisor.stdin.write(line.encode() + b"\n")
            self._supervisor.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise EmbeddedKafkaError(f"the broker's supervisor is gone ({error}): start the broker again") from error

    def _event(self, line: str) -> None:
        event, _, argument = line.partition(" ")
        if event == "pid":
            self.pid = int(argument)
        elif event == "exit":
            self.pid, self.exit_code = None, int(argument)
        elif event == "signalled":
            self._signalled = True
        elif event == "failed":
            raise EmbeddedKafkaError(f"the process can't be started: {argument}")

    def _lost(self) -> None:
        code = self._supervisor.wait()
        self.close()
        self.exit_code = code if code != 0 else -1
