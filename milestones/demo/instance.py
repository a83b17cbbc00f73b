"""`DemoInstance`: one instance of the demo's application, as a child process.

*Guarantees*: after `close` the child process has ended. The child ends by itself when this process dies.
*Assumes*: one thread uses a `DemoInstance`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

_STOP_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Report:
    """The last status that an instance has written. `tasks`: the place of each task, such as `running`. `restoring`:
    the number of changelog records that each restoring task still has to read."""

    state: str = "STARTING"
    stage: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)
    restoring: Mapping[str, int] = field(default_factory=dict)
    records: int = 0

    @property
    def active(self) -> frozenset[str]:
        """The tasks that the instance processes or restores. Standbys aren't included."""
        return frozenset(task for task, place in self.tasks.items() if place != "standby")

    @property
    def running(self) -> bool:
        return self.state == "RUNNING"

    @property
    def failed(self) -> bool:
        return self.state in ("PENDING_ERROR", "ERROR")

    @classmethod
    def parse(cls, line: bytes) -> Report | None:
        """Read a line of output. Returns None if the line isn't a report."""
        try:
            data: dict[str, Any] = orjson.loads(line)
            return cls(data["state"], data["stage"], data["tasks"], data["restoring"], data["records"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None


class DemoInstance:
    """A running instance. If it is killed, its successor gets the same `number` and `folder`, with the state and the
    log.

    *Owns*: the process, and the thread that reads its output. The thread publishes `report`, which is replaced as a
    whole.
    """

    number: int
    log: Path

    def __init__(self, number: int, folder: Path, settings: Mapping[str, str]) -> None:
        self.number, self.log = number, folder / f"instance-{number}.log"
        environment = {**os.environ, **settings, "MILESTONES_STATE_DIR": str(folder / f"state-{number}")}
        folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # The child gets a session of its own, so that Ctrl-C in the terminal reaches only this process.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "milestones.demo.app"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.pid: int = self._process.pid
        self.report: Report = Report()
        self.killed: bool = False
        self._reader = threading.Thread(target=self._read, name=f"instance {number} output", daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, or None while it is running. A negative number is the signal that ended it."""
        return self._process.poll()

    @property
    def alive(self) -> bool:
        return not self.killed and self.exit_code is None

    def kill(self) -> None:
        """Kill the process as `kill -9` does."""
        self.killed = True
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        """Send SIGTERM. The instance then commits, closes and leaves the group."""
        if self.exit_code is None:
            self._process.terminate()

    def wait(self, timeout_s: float = _STOP_PATIENCE_S) -> int | None:
        """Wait at most `timeout_s` for the end of the process. Returns its exit code, or None if it is still
        running."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Kill the process if it is still running, and release its pipes."""
        if self.exit_code is None:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def log_tail(self) -> list[str]:
        """Returns the last lines of the instance's log."""
        return self.log.read_text("utf-8", "replace").splitlines()[-15:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.report = Report.parse(line) or self.report
