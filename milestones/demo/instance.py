"""One instance of the demo's application: a child process, its last status, its end.

*Guarantees*: `close` leaves no process; the child ends by itself when this process dies.
*Assumes*: one thread uses an `DemoInstance`.
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
    """What an instance last said of itself. `tasks`: where each task is; `restoring`: changelog records to go."""

    state: str = "STARTING"
    stage: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)
    restoring: Mapping[str, int] = field(default_factory=dict)
    records: int = 0

    @property
    def active(self) -> frozenset[str]:
        """The tasks that it runs or restores; of others it keeps a copy, which is to become active or isn't."""
        return frozenset(task for task, place in self.tasks.items() if place != "standby")

    @property
    def running(self) -> bool:
        return self.state == "RUNNING"

    @property
    def failed(self) -> bool:
        return self.state in ("PENDING_ERROR", "ERROR")

    @classmethod
    def parse(cls, line: bytes) -> Report | None:
        """The report in a line of output; None when there is none."""
        try:
            data: dict[str, Any] = orjson.loads(line)
            return cls(data["state"], data["stage"], data["tasks"], data["restoring"], data["records"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None


class DemoInstance:
    """A running instance. `number` and `folder` (state and log) outlive it: its successor is given the same.

    *Owns*: the process and the thread that reads its output; that thread publishes `report`, replaced whole.
    """

    number: int
    log: Path

    def __init__(self, number: int, folder: Path, settings: Mapping[str, str]) -> None:
        self.number, self.log = number, folder / f"instance-{number}.log"
        environment = {**os.environ, **settings, "MILESTONES_STATE_DIR": str(folder / f"state-{number}")}
        folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is ours to answer, in order.
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
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    @property
    def alive(self) -> bool:
        return not self.killed and self.exit_code is None

    def kill(self) -> None:
        """`kill -9`."""
        self.killed = True
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        """SIGTERM: it commits, closes, leaves the group."""
        if self.exit_code is None:
            self._process.terminate()

    def wait(self, timeout_s: float = _STOP_PATIENCE_S) -> int | None:
        """Its exit code, None after `timeout_s`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End it, whatever it does."""
        if self.exit_code is None:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def log_tail(self) -> list[str]:
        """The last lines of its log."""
        return self.log.read_text("utf-8", "replace").splitlines()[-15:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.report = Report.parse(line) or self.report
