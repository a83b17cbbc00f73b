"""One instance of an application under test: a real process, started with nothing but a config.

*Guarantees*: every process that was started is ended; its log is kept; what it printed is in the error of a failure.
*Assumes*: `python -m compat_tests.apps`, or a fork of it (`forks.py`).
"""

from __future__ import annotations

import atexit
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any, Self

import psutil

from compat_tests.apps import ADDED, PAUSED, REMOVED, RESUMED, STATE, STATUS
from compat_tests.harness.forks import Forks, Process, inherited
from compat_tests.harness.log_tail import log_tail
from compat_tests.oracles.disk import nothing_used
from compat_tests.oracles.findings import Findings
from compat_tests.oracles.leftovers import Census, nothing_left
from milestones.testing import until

BASELINE = "baseline"
Settings = Mapping[str, Any]
"""Of an application's config."""
ROOT = Path(__file__).resolve().parents[2]
EXIT_S = 60.0
FORKS = Forks(ROOT)
"""Of this process: where instances come from, unless it is to start each afresh."""
atexit.register(FORKS.close)
RESTORED = re.compile(r": task (\d+_\d+) has restored (\d+) records$", re.MULTILINE)
"""What the log says of a task that was restored, before it runs."""


class DiedError(AssertionError):
    """A process ended that should live."""


class Instance:
    """A process that may be started again and again, on the same state directory."""

    entry: tuple[str, ...] = ("compat_tests.apps",)
    """The module that is run, and what its command line has before the topology's name."""

    def __init__(self, name: str, topology: str, config: Settings, directory: Path) -> None:
        self.name, self.topology, self._directory = name, topology, directory
        self.state_dir = directory / f"{name}-state"
        self.config = {"state_dir": str(self.state_dir), "client_id": name, **config}
        self.log_file = directory / f"{name}.log"
        self._census_file = directory / f"{name}-census.json"
        self._process: Process | None = None
        self.starts = 0
        self.stages = set[str]()
        """What its processes have been started as."""
        self.source = ROOT
        """The checkout whose code the next process runs."""
        self.may_end = False
        """Whether the case has ended the current process, told it to end, or armed a fault in it."""

    def __repr__(self) -> str:
        return f"<instance {self.name}: {'runs' if self.running else f'ended with {self.exit_code}'}>"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the last process."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def standing(self) -> bool:
        """Whether the current process stands still (SIGSTOP)."""
        return self.running and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    @property
    def exit_code(self) -> int | None:
        """Of the last process; negative: the signal that ended it. None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(
        self,
        fault: str | None = None,
        *,
        watch: bool = False,
        handler: str | None = None,
        refusals: Path | None = None,
        profile: Path | None = None,
        **changes: Any,
    ) -> Self:
        """Start the process. `fault`: as in MILESTONES_FAULT; `watch`: have it log when a stream thread waits for
        another thread (`apps/waits.py`); `handler`: what its uncaught exception handler says; `refusals`: the folder
        of the files by which its stores fail (`apps/refusals.py`); `profile`: the file of a profile's stacks;
        `changes`: to the config, for this start."""
        assert not self.running, f"{self} runs already"
        config_file = self._directory / f"{self.name}.toml"
        settings = {**self.config, **changes}
        config_file.write_text(as_toml(settings))
        arguments = [
            *(self.topology, "--config", str(config_file), "--census", str(self._census_file)),
            *(["--watch"] if watch else []),
            *(["--handler", handler] if handler is not None else []),
            *(["--refusals", str(refusals)] if refusals is not None else []),
            *(["--profile", str(profile)] if profile is not None else []),
        ]
        self._census_file.unlink(missing_ok=True)
        self.starts += 1
        self.stages.add(settings.get("milestones", BASELINE))
        self.may_end = fault is not None
        with self.log_file.open("ab") as log:
            log.write(f"---- start {self.starts}: {' '.join((*self.entry, *arguments))} (fault {fault})\n".encode())
        self._process = self._begin(arguments, environment(fault))
        return self

    @property
    def is_ours(self) -> bool:
        """Whether a process of it runs just what a server of forks has imported."""
        return self.entry == Instance.entry and self.source == ROOT

    def _begin(self, arguments: Sequence[str], variables: Mapping[str, str]) -> Process:
        """The process: a fork where one can be had of the same code."""
        if self.is_ours and not FORKS.fresh:
            return FORKS.start(arguments, variables, self.log_file)
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *self.entry, *arguments],
                cwd=self.source,
                env={**variables, "PYTHONPATH": str(self.source)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def signal(self, number: Signals) -> None:
        """Send a signal, if there is anybody to get it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """`kill -9`; returns when it is dead."""
        self.may_end = True
        self.signal(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def add_thread(self) -> None:
        """Have the living process start one more stream thread; returns when it has done so."""
        self._change(signal.SIGUSR2, ADDED)

    def remove_thread(self) -> None:
        """Have the living process end one of its stream threads; returns when that one has ended."""
        self._change(signal.SIGHUP, REMOVED)

    def pause_processing(self) -> None:
        """Have the living process pause all sub-topologies (KIP-834)."""
        self._change(signal.SIGTTOU, PAUSED)

    def resume_processing(self) -> None:
        """Have it go on with them."""
        self._change(signal.SIGTTIN, RESUMED)

    def _change(self, number: Signals, said: str) -> None:
        before = self.log().count(said)
        self.signal(number)
        until(lambda: self.log().count(said) > before, f"{self.name} logs {said!r}", EXIT_S, self.must_live)

    def wait(self, timeout_s: float = EXIT_S) -> int:
        """Wait for the end; the exit code."""
        assert self._process is not None, f"{self.name} was never started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} didn't end within {timeout_s:.0f} s\n{self.log_tail()}") from None

    def stop(self) -> None:
        """SIGTERM, and a clean end: exit code 0."""
        self.ask_to_stop()
        code = self.wait()
        assert code == 0, f"{self.name} was asked to stop and ended with exit code {code}\n{self.log_tail()}"

    def ask_to_stop(self) -> None:
        """SIGTERM; to a process that is still being born, once it listens."""
        self.says(STATE)
        self.may_end = True
        self.signal(signal.SIGTERM)

    def write_stacks(self) -> None:
        """Have a process that hangs write the stacks of its threads and its status into its log."""
        if self.running and STATE in self.log():
            self.signal(signal.SIGUSR1)
            with suppress(AssertionError):
                self.says(STATUS, timeout_s=5)

    def must_live(self) -> None:
        """Raise `DiedError` when the process has ended."""
        if not self.running:
            raise DiedError(f"{self.name} ended with exit code {self.exit_code}\n{self.log_tail()}")

    def dies(self, expected: int, *texts: str, timeout_s: float = EXIT_S) -> None:
        """Wait until the process ends by itself, with this exit code; its log has these texts then."""
        self.may_end = True
        code = self.wait(timeout_s)
        assert code == expected, f"{self.name}: exit code {code}, expected {expected}\n{self.log_tail()}"
        log = self.log()
        for text in texts:
            assert text in log, f"{self.name} doesn't say {text!r}\n{self.log_tail()}"

    def says(self, text: str, timeout_s: float = EXIT_S) -> None:
        """Wait until the log of the current process has `text`."""
        until(lambda: text in self.log(), f"{self.name} logs {text!r}", timeout_s, self.must_live)

    def state(self) -> str:
        """The state of the client that the current process named last; empty before the first."""
        return self.log().rpartition(STATE)[2].partition("\n")[0] if STATE in self.log() else ""

    def log(self) -> str:
        """What the current process has written."""
        return self.log_file.read_text(errors="replace").rpartition(f"---- start {self.starts}:")[2]

    def restored(self) -> Counter[str]:
        """How many changelog records the current process has restored before it ran the tasks, by task; what it read
        as their standby isn't in it."""
        found = Counter[str]()
        for task, count in self.restorations():
            found[task] += count
        return found

    def restorations(self) -> list[tuple[str, int]]:
        """Each restoration that the current process has completed: the task, and its records."""
        return [(task, int(count)) for task, count in RESTORED.findall(self.log())]

    def log_tail(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return f"the last lines of {self.log_file}:\n" + "\n".join(f"    {line}" for line in log_tail(lines))

    def disk_use(self) -> Findings:
        """The files and stores that threads of all its processes used which poll."""
        log = self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
        return nothing_used(self.name, log)

    def leftovers(self) -> Findings:
        """What the last process still had after its clean end."""
        census = json.loads(self._census_file.read_text())
        found = nothing_left(Census.of(census["before"]), Census.of(census["after"]), str(self.state_dir))
        return [finding._replace(text=f"{self.name}: {finding.text}") for finding in found]

    def end(self) -> None:
        """Whatever it is doing: end it."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()


def environment(fault: str | None) -> dict[str, str]:
    """That of an instance with a fault."""
    return {**inherited(), **({} if fault is None else {"MILESTONES_FAULT": fault})}


def as_toml(config: Mapping[str, Any]) -> str:
    """Settings as TOML: its strings, numbers, booleans and lists are written as in JSON, tables in one line."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in config.items() if value is not None)


def _value(value: Any) -> str:
    if not isinstance(value, Mapping):
        return json.dumps(value)
    return "{" + ", ".join(f"{json.dumps(key)} = {_value(one)}" for key, one in value.items()) + "}"
