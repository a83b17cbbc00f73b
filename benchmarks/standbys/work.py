"""Standbys beside a restoration: two instances whose disks are empty, each with half of the tasks, and with standbys of
the other half, on one thread.

*Guarantees*: what is shown was seen while active tasks restored on the same thread.
*Assumes*: the broker is ours alone. Static members get again what they had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.cluster import COMPACTED, FOREVER, Cluster
from benchmarks.errors import BenchmarkError
from benchmarks.moves import PARTITIONS, STORE
from benchmarks.moves.group import Group
from benchmarks.report import columns
from benchmarks.restore.work import rows

TIMEOUT_S = 300.0
NAMES = ("one", "two")
SESSION_TIMEOUT_MS = 120_000
SHOWN = 8
"""Moments of each instance."""


@dataclass(frozen=True)
class Moment:
    """`at`: s since the first; in records: `remaining` of the active tasks, `lag` of the standbys."""

    at: float
    remaining: int
    lag: int


def measure(
    cluster: Cluster, directory: Path, stage: str, records: int, seed: int, log: Callable[[str], None]
) -> dict[str, Sequence[Moment]]:
    """By instance: every look at it while its active tasks restored `records` records, about."""
    app = f"beside-{stage}"
    source, output = f"{app}-input", f"{app}-output"
    changelog = f"{app}-{STORE}-changelog"
    for topic in (source, output):
        cluster.create(topic, PARTITIONS, FOREVER)
    cluster.create(changelog, PARTITIONS, COMPACTED)
    settings = {
        "application_id": app, "bootstrap_servers": cluster.bootstrap_servers, "milestones": stage,
        "num_stream_threads": 1, "session_timeout_ms": SESSION_TIMEOUT_MS, "metrics_port": 0,
    }  # fmt: skip
    with Group(directory, settings, source, output, static=True) as group:
        group.standbys = 1
        group.start(*NAMES)
        group.settle(TIMEOUT_S)
        group.stop(*NAMES)
        cluster.fill(rows(changelog, len(NAMES) * records, seed))
        log(f"{stage}: {len(NAMES) * records:,} records in the changelog")
        group.start(*NAMES)
        return _watch(group)


def _watch(group: Group) -> dict[str, Sequence[Moment]]:
    began = time.monotonic()
    seen: dict[str, list[Moment]] = {name: [] for name in NAMES}

    def restored() -> bool:
        for name in NAMES:
            remaining, lags = group.remaining(name), group.lags(name)
            if sum(remaining) and lags and min(lags) >= 0:
                seen[name].append(Moment(time.monotonic() - began, sum(remaining), sum(lags)))
        return all(group.log(name).count("has restored") == PARTITIONS // len(NAMES) for name in NAMES)

    group.wait(restored, "both have restored", TIMEOUT_S)
    for name, moments in seen.items():
        if len(moments) < 2:
            raise BenchmarkError(f"{name} restored before it was seen; take more records")
    return dict(seen)


def table(title: str, found: Mapping[str, Mapping[str, Sequence[Moment]]]) -> Table:
    """`found` by stage and instance."""
    shown = columns(title, "stage", "instance", "at s", "active tasks' remaining", "standbys' lag", title_at="center")
    for stage, instances in found.items():
        for name, moments in instances.items():
            for one in _some(moments):
                shown.add_row(stage, name, f"{one.at:.1f}", f"{one.remaining:,}", f"{one.lag:,}")
    return shown


def _some(moments: Sequence[Moment]) -> Iterator[Moment]:
    """Evenly, the first and the last too; a moment that is as the one before is passed over."""
    news = [one for before, one in zip((None, *moments), moments, strict=False)
            if before is None or (one.remaining, one.lag) != (before.remaining, before.lag)]  # fmt: skip
    most = min(SHOWN, len(news))
    yield from (news[round(number * (len(news) - 1) / max(1, most - 1))] for number in range(most))
