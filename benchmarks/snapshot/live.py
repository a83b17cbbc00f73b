"""Snapshots that a running instance makes (m6): what they cost it, how large a delta is, how fast a lost disk serves.

*Guarantees*: a count is judged as `count` judges it; restorations as `snapshot` judges them.
*Assumes*: runs one after the other.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.cluster import COMPACTED, FOREVER
from benchmarks.contenders import CHANGELOG, Contender
from benchmarks.count.work import Count
from benchmarks.errors import BenchmarkError
from benchmarks.job import EXACTLY_ONCE, Job
from benchmarks.process import Measured, Usage
from benchmarks.report import columns
from benchmarks.restore.work import rows
from benchmarks.snapshot import HELD, MADE, STORE
from benchmarks.snapshot.work import (
    APPLICATION,
    HTTP,
    PARTITIONS,
    REPLAY,
    TIMEOUT_S,
    Compaction,
    Restored,
    Snapshot,
    kept,
)

STAGE = "m6"
WITH, WITHOUT = "with snapshots", "without"
CHECKPOINT = re.compile(r"a checkpoint took ([\d.]+) ms")


class LiveCount(Count):
    """The count, with snapshots of its store every so often, and without."""

    def contenders(self, every_ms: int) -> list[Contender]:
        """Both."""

        def counting(name: str, work: str) -> Contender:
            def command(job: Job) -> Sequence[str]:
                told = Job(**{**vars(job), "stage": STAGE, "work": work})
                return [sys.executable, "-m", "benchmarks.snapshot.counting", *told.arguments()]

            return Contender(name, command, thin=frozenset({CHANGELOG}))

        return [counting(WITHOUT, "-"), counting(WITH, f"file://{self._directory}/live|{every_ms}")]

    def judge(self, contender: Contender, job: Job, usage: Usage) -> dict[str, float]:
        said = self._log_file(job).read_text("utf-8", "replace")
        (held,) = [line for line in said.splitlines() if line.startswith(HELD)]
        p99, p999, longest = map(float, held.removeprefix(HELD).split())
        checkpoints = [float(ms) for ms in CHECKPOINT.findall(said)]
        made = said.count(MADE)
        if contender.name == WITH and not made:
            raise BenchmarkError("no snapshot was made in that time: give more records, or a shorter interval")
        return {
            **super().judge(contender, job, usage), "p99_ms": p99, "p999_ms": p999, "longest_ms": longest,
            "checkpoint_ms": max(checkpoints, default=0.0), "made": float(made),
        }  # fmt: skip


def count(
    work: LiveCount, every_ms: int, rounds: int, seed: int, log: Callable[[str], None]
) -> dict[str, list[dict[str, float]]]:
    """Both, in an order by seed, so often; their figures."""
    both, rng = work.contenders(every_ms), random.Random(seed)
    found: dict[str, list[dict[str, float]]] = {one.name: [] for one in both}
    work.prepare(both)
    for _ in range(rounds):
        for one in rng.sample(both, len(both)):
            figures = work.measure(one, EXACTLY_ONCE)
            found[one.name].append(figures)
            log(f"count {one.name}: {figures['records_per_s']:,.0f} records/s, {figures['made']:.0f} snapshots")
    return found


class LiveSnapshot(Snapshot):
    """Restorations, from snapshots that an instance has made."""

    def prepare(self, log: Callable[[str], None]) -> list[Compaction]:
        changelog = f"{APPLICATION}-{STORE}-changelog"
        self._cluster.create(f"{APPLICATION}-input", PARTITIONS, FOREVER)
        self._cluster.create(changelog, PARTITIONS, COMPACTED)
        self._cluster.fill(rows(changelog, self._records, self._seed))
        directory = self._directory / "maker"
        directory.mkdir()
        file = self.settings(directory, STAGE, self.url(STAGE), snapshot_interval_ms="1000")
        log_file = directory.with_suffix(".log")
        with Measured([sys.executable, "-m", "benchmarks.snapshot.app", str(file)], log_file) as process:
            process.wait(lambda: log_file.read_text("utf-8", "replace").count(MADE) >= PARTITIONS, TIMEOUT_S)
            process.stop()
        log(f"an instance has made the snapshots of {self._records:,} records")
        self._cluster.fill(rows(changelog, max(1, self._tail), self._seed + 1))
        return []


def restored(work: Snapshot, rounds: int, served: str, log: Callable[[str], None]) -> list[Restored]:
    """Replays, and restorations over HTTP, in turn."""
    found = []
    for _ in range(rounds):
        for way, url in ((REPLAY, None), (HTTP, f"{served}/{kept(STAGE)}")):
            found.append(work.restore(STAGE, way, url))
            log(f"{way}: {found[-1].seconds:.2f} s, {found[-1].records:,} records read")
    return found


def delta_share(directory: Path, entries: int, seed: int) -> tuple[int, int]:
    """Bytes of a base of so many entries, and of the delta after one in a hundred has changed."""
    from benchmarks.snapshot.delta import sizes

    return sizes(directory, entries, seed)


def table(
    title: str, counted: dict[str, list[dict[str, float]]], sizes: tuple[int, int], found: Sequence[Restored]
) -> Table:
    """What was measured, and the ratios."""
    shown = columns(title, "what", "without / base / replay", "with / delta / snapshot", "ratio", title_at="center")

    def row(what: str, pair: Sequence[float], form: str) -> None:
        one, other = pair
        shown.add_row(what, format(one, form), format(other, form), f"{other / one:.3f}" if one else "")

    for name, form in (
        ("records_per_s", ",.0f"), ("warm_records_per_s", ",.0f"), ("cpu_s_per_million", ".1f"), ("p99_ms", ".1f"),
        ("p999_ms", ".1f"), ("longest_ms", ".1f"), ("checkpoint_ms", ".1f"), ("made", ",.0f"),
    ):  # fmt: skip
        row(name, [median(figures[name] for figures in counted[way]) for way in (WITHOUT, WITH)], form)
    row("bytes, 1 % changed", sizes, ",.0f")
    row("seconds to restore", [median(one.seconds for one in found if one.way == way) for way in (REPLAY, HTTP)], ".2f")
    return shown
