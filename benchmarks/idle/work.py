"""Hundreds of tasks without input, on one stream thread of one instance: what waiting costs.

`cpu_s_per_s`: CPU seconds of the process per second of wall time, once it is RUNNING and has been for `SETTLE_S`. All
of it counts: the stream thread, Kafka's client, metrics.

*Guarantees*: nothing is measured before the client is RUNNING: being the only one, it has all tasks then.
*Assumes*: the broker is ours alone. The client's share is the same for all stages: it asks for each partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.cluster import FOREVER, Cluster
from benchmarks.contenders import Contender
from benchmarks.fed import Fresh
from benchmarks.idle import PLAIN, RUNNING, STATEFUL, STATEFUL_SHARE
from benchmarks.job import Job
from benchmarks.process import Measured, Usage
from benchmarks.rows import Figure

START_S = 300.0
SETTLE_S = 5.0
"""After RUNNING, until it is measured: metrics of all tasks are there by then, connections are made."""


class Idle(Fresh):
    """Hundreds of tasks without input, some of them with a store: what waiting costs."""

    name = "idle"
    partitions = 1
    create_s = START_S
    figures = (
        Figure("cpu_s_per_s", "CPU s per s", digits=3, compared=True),
        Figure("rss_mb", "peak RSS MB"),
    )

    def __init__(self, cluster: Cluster, directory: Path, tasks: int, seconds: int, seed: int) -> None:
        """There is no input that a seed could be of. At least one task has a store."""
        super().__init__(cluster, directory)
        self._stateful = max(1, tasks // STATEFUL_SHARE)
        self._tasks, self._seconds = tasks, seconds

    @property
    def title(self) -> str:
        return f"{self._tasks:,} tasks, {self._stateful:,} of them with a store, no input, {self._seconds} s"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """The inputs, which stay empty."""
        self._cluster.create(f"input-{PLAIN}", self._tasks - self._stateful, FOREVER, START_S)
        self._cluster.create(f"input-{STATEFUL}", self._stateful, FOREVER, START_S)

    def input(self, contender: Contender, run: str) -> str:
        return "input"

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        running = Path(job.state_dir + RUNNING)
        with Measured(contender.command(job), self._log_file(job)) as process:
            process.wait(running.exists, START_S)
            settled = time.time() + SETTLE_S
            process.wait(lambda: time.time() >= settled + self._seconds, SETTLE_S + self._seconds + START_S)
            return self._figures(process.stop(), settled)

    def _figures(self, usage: Usage, settled: float) -> dict[str, float]:
        """`settled`: when the process was, s since the epoch."""
        used = usage.cpu_s_between(settled, settled + self._seconds)
        return {"cpu_s_per_s": used / self._seconds, "rss_mb": usage.peak_rss_mb}
