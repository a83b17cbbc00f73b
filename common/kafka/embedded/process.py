"""`SupervisedProcess`: runs a child process that can't outlive this process, through a supervisor (`supervisor.py`).

*Guarantees*: after `close`, or after the death of this process for any reason, the child has ended. Signals go only to
the own child, never to another process with the same id.
*Assumes*: one thread at a time uses the object.
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
    """Runs one child process at a time. *Owns*: the supervisor and the pipes to it.

    `folder`: a folder with temporary data, which the supervisor deletes at its end. `lock`: the descriptor of a locked
    file. The supervisor holds the lock until the last child has ended. The caller may close its own copy after the
    constructor.
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
            start_new_session=True,  # so that Ctrl-C in the terminal reaches this process only
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
        """Start the command `argv`, and append its output to the file `output`. Raises `EmbeddedKafkaError` if the
        command can't be started."""
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
        """True if the supervisor has ended, by `close` or by itself. Then no further child can be run."""
        return self._events < 0

    @property
    def running(self) -> bool:
        """True if the child is running, by the last message of the supervisor."""
        if self.pid is not None:
            self.poll(0)
        return self.pid is not None

    def poll(self, timeout_s: float | None) -> int | None:
        """Wait at most `timeout_s` for a message of the supervisor; None means without limit. Returns the child's exit
        code, or None if it hasn't ended."""
        if not self.closed and select.select([self._events], [], [], timeout_s)[0]:
            received = os.read(self._events, 65536)
            if not received:
                self._lost()
            *lines, self._received = (self._received + received).split(b"\n")
            for line in lines:
                self._event(line.decode())
        return self.exit_code

    def wait(self, timeout_s: float | None) -> int | None:
        """Wait at most `timeout_s` for the end of the child. Returns its exit code, or None if it hasn't ended."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.running:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self.poll(left)
        return self.exit_code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child, and wait until it was sent. Does nothing if the child has ended."""
        if not self.running:
            return
        self._signalled = False
        self._order(f"signal {int(number)}")
        while not self._signalled and not self.closed:
            self.poll(None)

    def close(self) -> None:
        """End the child and the supervisor, and delete the folder. A second call is harmless."""
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
