"""A conversion that is killed (`kill -9`) again and again, each time begun anew, and comes to its end at last.

    process: convert --killed at a random moment--> process: convert --...--> process: convert, to its end

*Guarantees*: a process is followed by the next one at once, as by a supervisor that starts an instance again.
*Assumes*: the state directory is nobody else's meanwhile.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.errors import BenchmarkError
from benchmarks.process import ROOT

PROGRAM: Final = "benchmarks.convert.once"
BEGUN: Final = "begun"
"""What the process says before it begins."""


@dataclass(frozen=True)
class Killed:
    """After how many seconds each conversion was killed, with how many tasks converted, by it and those before it; and
    the seconds of the last one, which did what was left."""

    way: str
    kills: tuple[tuple[float, int], ...]
    seconds: float

    def __str__(self) -> str:
        kills = ", ".join(f"{killed_s:.1f} s ({tasks})" for killed_s, tasks in self.kills)
        return (
            f"{self.way}: killed {len(self.kills)} times, after (with so many tasks converted) {kills}; the last one: "
            f"{self.seconds:.1f} s"
        )


def convert_killed(
    way: str, state_dir: Path, kills: int, usual_s: float, dice: random.Random, converted: Callable[[], int]
) -> Killed:
    """Convert the state in conversions of which the first `kills` are killed, or fewer where one has come to its end
    before. `usual_s`: the time of a conversion that isn't killed; `converted`: gives the number of converted tasks.
    `BenchmarkError`."""
    found: list[tuple[float, int]] = []
    while True:
        moment_s = dice.uniform(0, 2 * usual_s / (kills + 1)) if len(found) < kills else None
        took_s, ended = _run(way, state_dir, moment_s)
        if ended:
            return Killed(way, tuple(found), took_s)
        found.append((took_s, converted()))


def _run(way: str, state_dir: Path, moment_s: float | None) -> tuple[float, bool]:
    """How long a conversion took, and whether it has come to its end, before the moment at which it is killed."""
    command = [sys.executable, "-m", PROGRAM, way, str(state_dir)]
    said = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=said, stderr=said) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        try:
            _, told = process.communicate(timeout=moment_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return time.monotonic() - began, False
    if process.returncode:
        raise BenchmarkError(f"{way}: exit code {process.returncode}: {told[-2000:]}")
    return time.monotonic() - began, True
