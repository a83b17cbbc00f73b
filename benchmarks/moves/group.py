"""The instances of one application, as processes.

*Guarantees*: all are ended at the end of the block.
*Assumes*: POSIX.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.errors import BenchmarkError
from benchmarks.moves import PARTITIONS
from benchmarks.moves.timeline import Given, settled, share
from benchmarks.process import Measured

LOOK_S = 0.1
ENDPOINT = re.compile(r"metrics are served at (http://\S+)")
LAG, REMAINING = (
    re.compile(rf"^kafka_stream_task_{name}\{{[^}}]*\}} (\S+)", re.MULTILINE)
    for name in ("standby_records_lag", "restore_remaining_records")
)
RUNNING = re.compile(r"client state: \S+ -> (\S+)")


class Group:
    """A context manager. `processes`: those that run, by name."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any],
        *arguments: str,
        app: str = "benchmarks.moves.app",
        tasks: int = PARTITIONS,
        static: bool = False,
    ) -> None:
        """`arguments`: of the program `app`, after the file with its settings; `static`: who comes back gets what it
        had."""
        self._directory, self._settings, self._arguments = directory, settings, arguments
        self._app, self._tasks = app, tasks
        self._all, self._starts, self._static = ExitStack(), 0, static
        self._logs: dict[str, Path] = {}
        self.processes: dict[str, Measured] = {}
        self.standbys = 0

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.close()

    def start(self, *names: str, **changed: Any) -> None:
        """Start these; nobody waits for them. `changed`: settings of these processes only."""
        for name in names:
            self._starts += 1
            config, self._logs[name] = (self._directory / f"{name}-{self._starts}.{end}" for end in ("toml", "log"))
            state = str(self._directory / f"{name}-state")
            settings = {**self._settings, "client_id": name, "state_dir": state, "num_standby_replicas": self.standbys}
            settings |= changed
            if self._static:
                settings["group_instance_id"] = name
            config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
            command = [sys.executable, "-m", self._app, str(config), *self._arguments]
            self.processes[name] = self._all.enter_context(Measured(command, self._logs[name]))

    def stop(self, *names: str) -> None:
        """A clean end of each, one after the other."""
        for name in names:
            self.processes.pop(name).stop()

    def kill(self, name: str) -> None:
        """`kill -9`."""
        self.processes.pop(name).kill()

    def log(self, name: str) -> str:
        """What the newest process of that name has written."""
        return self._logs[name].read_text("utf-8", "replace")

    def given(self) -> dict[str, Given | None]:
        """What each of those that run was given last, None while its threads don't know the same generation."""
        return {name: share(self.log(name)) for name in self.processes}

    def settle(self, timeout_s: float) -> None:
        """Wait until those that run share all tasks, run them, and have all standbys of them caught up."""
        self.wait(lambda: settled(self.given(), self._tasks, self.standbys), "the tasks are shared", timeout_s)
        self.wait(self._all_run, "all instances run", timeout_s)

    def _all_run(self) -> bool:
        states = [RUNNING.findall(self.log(name))[-1:] for name in self.processes]
        return all(state == ["RUNNING"] for state in states)

    def caught_up(self, lag: int, timeout_s: float) -> None:
        """Wait until no standby lags more than so many records."""
        expected = self._tasks * min(self.standbys, len(self.processes) - 1)

        def all_have() -> bool:
            lags = [lag for name in self.processes for lag in self.lags(name)]
            return len(lags) == expected and all(0 <= one <= lag for one in lags)

        self.wait(all_have, "all standbys have caught up", timeout_s)

    def lags(self, name: str) -> list[int]:
        """Of its standbys, in records; -1: unknown."""
        return self._metric(name, LAG)

    def remaining(self, name: str) -> list[int]:
        """Of its active tasks, records still to restore."""
        return self._metric(name, REMAINING)

    def _metric(self, name: str, pattern: re.Pattern[str]) -> list[int]:
        served = ENDPOINT.search(self.log(name))
        if served is None:
            return []
        try:
            with urlopen(served[1], timeout=10) as answer:
                text = answer.read().decode()
        except URLError:
            return []
        return [int(float(value)) for value in pattern.findall(text)]

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Look until it holds. `BenchmarkError` when it doesn't in time, or when somebody has ended."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            for process in self.processes.values():
                process.must_live()
            if time.monotonic() > deadline:
                raise BenchmarkError(f"not within {timeout_s:.0f} s: {what}; given last: {self.given()}")
            time.sleep(LOOK_S)
