"""What a process uses over time, and whether that grows.

| kind | what was found |
|---|---|
| memory | more resident memory in the last quarter of the time than in the second |
| handles | more open files and connections |
| threads | more threads |
| disk | more bytes below its state directory |
| samples | too few were taken to say anything of a trend |

*Guarantees*: `flat` is pure. A quarter is judged by its median: what comes with a rebalance and goes again is nothing.
*Assumes*: the first quarter is warming up; the load is the same all the time.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple, get_type_hints

import psutil

from compat_tests.oracles.findings import Finding, Findings

MEGABYTE = 1 << 20
FEWEST = 16
"""Samples that say something about a trend."""


class Sample(NamedTuple):
    """One look at one process from outside. `starts`: how often it was started so far; `kills`, `cuts`: how many of the
    others were killed, and how many of its commits got no answer."""

    elapsed_s: float
    instance: str
    starts: int
    rss_mb: float
    handles: int
    threads: int
    records: int
    kills: int
    cuts: int = 0
    disk_mb: float = 0.0


ALLOWED: dict[str, tuple[Callable[[Sample], float], float]] = {
    "memory": (lambda sample: sample.rss_mb, 16),
    "handles": (lambda sample: sample.handles, 8),
    "threads": (lambda sample: sample.threads, 2),
    "disk": (lambda sample: sample.disk_mb, 16),
}
"""What is measured, and how much more than a twentieth it may grow: its own unit."""


def sample(
    elapsed_s: float,
    name: str,
    starts: int,
    pid: int,
    records: int,
    kills: int,
    cuts: int = 0,
    home: Path | None = None,
) -> Sample | None:
    """One look at a process and at its state directory `home`; None when the process has ended."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            rss = process.memory_info().rss / MEGABYTE
            used = round(rss, 1), process.num_fds(), process.num_threads()
    except psutil.NoSuchProcess:
        return None
    disk = 0.0 if home is None else round(size_of(home) / MEGABYTE, 1)
    return Sample(round(elapsed_s, 1), name, starts, *used, records, kills, cuts, disk)


def size_of(folder: Path) -> int:
    """Bytes of the files below, without those that go meanwhile. One with several names counts once."""
    sizes: dict[int, int] = {}
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found = (Path(directory) / name).stat()
                sizes[found.st_ino] = found.st_size
    return sum(sizes.values())


def flat(samples: Sequence[Sample]) -> Findings:
    """What grows, in the samples of one process."""
    if len(samples) < FEWEST:
        return [Finding("samples", f"{len(samples)} samples say nothing about a trend; at least {FEWEST} are needed")]
    quarter = len(samples) // 4
    before, after = samples[quarter : 2 * quarter], samples[-quarter:]
    findings = []
    for kind, (measure, more) in ALLOWED.items():
        was, now = median(map(measure, before)), median(map(measure, after))
        if now > was * 1.05 + more:
            findings.append(Finding(kind, f"{samples[0].instance}: {was:g} in the second quarter, {now:g} in the last"))
    return findings


def write(samples: Sequence[Sample], file: Path) -> None:
    """As CSV, with a head."""
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(Sample._fields)
        writer.writerows(samples)


def read(file: Path) -> list[Sample]:
    """What `write` wrote."""
    with file.open(newline="", encoding="utf-8") as lines:
        _, *rows = csv.reader(lines)
    kinds = get_type_hints(Sample).values()
    return [Sample(*(kind(text) for kind, text in zip(kinds, row, strict=True))) for row in rows]
