"""One contender at work: a process of its own, looked at from outside.

*Guarantees*: it is ended, whatever happens, and its log is in the error when it ends by itself.
*Assumes*: POSIX (`wait4`); CPU times come in the system's ticks, of 10 ms mostly.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil

from benchmarks.errors import BenchmarkError

ROOT = Path(__file__).resolve().parents[1]
SAMPLE_S = 0.05
STOP_S = 60.0
ENDING_S = 5.0
"""How long a process that can't be looked at any more may take to be gone."""
TAIL_LINES = 30
BLOCK_BYTES = 512
"""The unit of `ru_oublock`."""
PROFILER = "py-spy"
"""A command that runs the contender as its child."""
T = TypeVar("T")
STOPPED = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
"""Exit codes of a process that ends when it is asked to: ours, and a JVM's."""


@dataclass(frozen=True)
class Sample:
    """`at`: s since the epoch. `cpu_s`: of all its threads, since its start."""

    at: float
    cpu_s: float
    rss_mb: float


def sample(process: psutil.Process, workers: Sequence[psutil.Process] = ()) -> Sample:
    """What a process and its workers have used so far."""
    cpu_s = rss = 0.0
    for one in (process, *workers):
        with one.oneshot():
            cpu, memory = one.cpu_times(), one.memory_info()
        cpu_s, rss = cpu_s + cpu.user + cpu.system, rss + memory.rss
    return Sample(time.time(), cpu_s, rss / 1e6)


@dataclass(frozen=True)
class Usage:
    """What a process has used. `total_cpu_s`, `written_mb`: from its start to its end, as the system says
    (`getrusage`); the second is what it has had written to disks."""

    samples: Sequence[Sample]
    total_cpu_s: float
    written_mb: float = 0.0

    @property
    def peak_rss_mb(self) -> float:
        return max(sample.rss_mb for sample in self.samples)

    def cpu_s_between(self, start: float, end: float) -> float:
        """CPU seconds used between two times (s since the epoch)."""
        return self.at(end).cpu_s - self.at(start).cpu_s

    def at(self, at: float) -> Sample:
        """What it had used at a time, by the samples around it: of memory the larger one."""
        after = bisect_left(self.samples, at, key=lambda sample: sample.at)
        if after == 0 or after == len(self.samples):
            return self.samples[min(after, len(self.samples) - 1)]
        first, second = self.samples[after - 1], self.samples[after]
        share = (at - first.at) / (second.at - first.at)
        return Sample(at, first.cpu_s + share * (second.cpu_s - first.cpu_s), max(first.rss_mb, second.rss_mb))


def together(usages: Sequence[Usage]) -> Usage:
    """What several processes have used that ran at the same time."""
    if len(usages) == 1:
        return usages[0]
    samples: list[Sample] = []
    for at in sorted({sample.at for usage in usages for sample in usage.samples}):
        each = [usage.at(at) for usage in usages]
        samples.append(Sample(at, sum(one.cpu_s for one in each), sum(one.rss_mb for one in each)))
    return Usage(samples, sum(one.total_cpu_s for one in usages), sum(one.written_mb for one in usages))


class Measured:
    """A context manager around a process. `pid` is known inside; `stop` gives its `Usage`. `workers`: if it is more
    than one, the process has this number of children, and their usage is part of it."""

    def __init__(self, command: Sequence[str], log_file: Path, workers: int = 1) -> None:
        self._command, self._log_file = list(command), log_file
        self._awaited, self._workers = 0 if workers == 1 else workers, list[psutil.Process]()
        self._samples: list[Sample] = []

    def __enter__(self) -> Measured:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MILESTONES_")}
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env={**kept, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._watched = psutil.Process(self._process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, done: Callable[[], bool], timeout_s: float, every_s: float = 0.2) -> None:
        """Sample until `done` says so; it is asked every `every_s`."""
        wait([self], done, timeout_s, every_s)

    def kill(self) -> None:
        """`kill -9`; it is dead when this returns."""
        self._process.kill()
        self._process.wait()

    def must_live(self) -> None:
        """`BenchmarkError` when it has ended by itself."""
        if self._process.poll() is not None:
            raise BenchmarkError(f"it ended by itself, with exit code {self._process.returncode}{self.said()}")

    def stop(self) -> Usage:
        """Ask it to end, wait for that; what it has used."""
        self.terminate()
        return self.ended()

    def terminate(self) -> None:
        """Ask it to end."""
        profiled = Path(self._command[0]).name == PROFILER
        for process in self.look(lambda process: process.children() if profiled else [process]):
            with suppress(psutil.NoSuchProcess):
                process.terminate()

    def ended(self) -> Usage:
        """Wait until it ends, as it was asked to; what it has used."""
        deadline = time.monotonic() + STOP_S
        while True:
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                raise BenchmarkError(f"it didn't end within {STOP_S:.0f} s of SIGTERM{self.said()}")
            time.sleep(SAMPLE_S)
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        if code not in STOPPED:
            raise BenchmarkError(f"it ended with exit code {code}{self.said()}")
        written_mb = usage.ru_oublock * BLOCK_BYTES / 1e6
        return Usage(tuple(self._samples), usage.ru_utime + usage.ru_stime, written_mb)

    def look(self, look: Callable[[psutil.Process], T]) -> T:
        """What `look` sees of the process. `BenchmarkError`, with its log, when it has ended, or ends meanwhile."""
        self.must_live()
        try:
            return look(self._watched)
        except (psutil.Error, OSError) as error:  # as it ends, any of its files in /proc may be gone
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_S)
            self.must_live()
            raise BenchmarkError(f"it couldn't be looked at ({error}){self.said()}") from error

    def sample(self) -> None:
        """Note what it has used so far."""
        if len(self._workers) < self._awaited:
            self._workers = self.look(lambda process: process.children())
        self._samples.append(self.look(lambda process: sample(process, self._workers)))

    def said(self) -> str:
        """What follows on the line that says what happened."""
        lines = self._log_file.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]
        return "\n".join([":", " ".join(self._command), "its log ends with", *lines])


def wait(processes: Sequence[Measured], done: Callable[[], bool], timeout_s: float, every_s: float = 0.2) -> None:
    """Sample all of them until `done` says so; it is asked every `every_s`."""
    begun = asked = time.monotonic()
    while True:
        for process in processes:
            process.sample()
        now = time.monotonic()
        if now - asked >= every_s:
            if done():
                return
            asked = time.monotonic()
        if now - begun > timeout_s:
            raise BenchmarkError(f"not done within {timeout_s:.0f} s{''.join(one.said() for one in processes)}")
        time.sleep(SAMPLE_S)
