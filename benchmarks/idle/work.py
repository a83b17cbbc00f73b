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
from benchmarks.errors import BenchmarkError
from benchmarks.idle import PLAIN, RUNNING, STATEFUL, STATEFUL_SHARE
from benchmarks.job import Job
from benchmarks.process import Measured, Usage
from benchmarks.rows import Figure

START_S = 300.0
SETTLE_S = 5.0
"""After RUNNING, until it is measured: metrics of all tasks are there by then, connections are made."""


class Idle:
    """Hundreds of tasks without input, some of them with a store: what waiting costs."""

    name = "idle"
    figures = (
        Figure("cpu_s_per_s", "CPU s per s", digits=3, compared=True),
        Figure("rss_mb", "peak RSS MB"),
    )

    def __init__(self, cluster: Cluster, directory: Path, tasks: int, seconds: int, seed: int) -> None:
        """There is no input that a seed could be of. At least one task has a store."""
        self._cluster, self._directory = cluster, directory
        self._stateful = max(1, tasks // STATEFUL_SHARE)
        self._tasks, self._seconds = tasks, seconds
        self._runs = 0

    @property
    def title(self) -> str:
        return f"{self._tasks:,} tasks, {self._stateful:,} of them with a store, no input, {self._seconds} s"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """The inputs, which stay empty."""
        self._cluster.create(f"input-{PLAIN}", self._tasks - self._stateful, FOREVER, START_S)
        self._cluster.create(f"input-{STATEFUL}", self._stateful, FOREVER, START_S)

    def measure(self, contender: Contender, guarantee: str) -> dict[str, float]:
        """One run, everything fresh; its figures by name."""
        self._runs += 1
        run = f"{self.name}-{self._runs}"
        job = Job(
            bootstrap_servers=self._cluster.bootstrap_servers,
            application_id=run,
            guarantee=guarantee,
            input="input",
            output=f"{run}-output",
            state_dir=str(self._directory / run),
        )
        self._cluster.create(job.output, 1, FOREVER, START_S)
        try:
            return self._figures(*self._run(contender, job))
        except BenchmarkError as error:
            raise BenchmarkError(f"{contender.name}, {guarantee}: {error}") from error
        finally:
            self._cluster.delete(f"{run}-")

    def _run(self, contender: Contender, job: Job) -> tuple[Usage, float]:
        """What the process has used, and when it was settled, s since the epoch."""
        running = Path(job.state_dir + RUNNING)
        with Measured(contender.command(job), self._directory / f"{job.application_id}.log") as process:
            process.wait(running.exists, START_S)
            settled = time.time() + SETTLE_S
            process.wait(lambda: time.time() >= settled + self._seconds, SETTLE_S + self._seconds + START_S)
            return process.stop(), settled

    def _figures(self, usage: Usage, settled: float) -> dict[str, float]:
        used = usage.cpu_s_between(settled, settled + self._seconds)
        return {"cpu_s_per_s": used / self._seconds, "rss_mb": usage.peak_rss_mb}
