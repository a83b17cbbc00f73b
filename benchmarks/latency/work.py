"""From a record's making to its output, as a reader of committed records sees it, at an even pace.

The program keeps each key's last value in a store with a changelog, and puts it out. The input comes at `--rate`
records a second in all four partitions. Once the process is in step with it, nothing counts for `--warm` seconds, then
everything does for `--seconds`. Commits are every 100 ms.

| figure | what |
|---|---|
| p50, p99, p99.9 | of the time from the call that made a record to the moment when its output was read |
| fed | p99 of the time that the broker needed to take an input: what the machine adds |
| CPU | CPU seconds of the process per second |

*Guarantees*: a run counts only when each input has its output, once.
*Assumes*: as `paced.py`; the broker is ours alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.cluster import FOREVER, Cluster
from benchmarks.contenders import Contender
from benchmarks.fed import Fresh
from benchmarks.job import Job
from benchmarks.moves.traffic import thread
from benchmarks.paced import Outputs, Paced, keys_of, latencies, percentile
from benchmarks.process import Measured, Usage
from benchmarks.rows import Figure

START_S, END_S = 300.0, 60.0
COMMIT_INTERVAL_MS = "100"


class Latency(Fresh):
    """End-to-end latency at an even pace, with a commit every 100 ms."""

    name = "latency"
    timeout_s = START_S
    asked: Mapping[str, str] = {"commit_interval_ms": COMMIT_INTERVAL_MS}
    figures: Sequence[Figure] = (
        Figure("p50_ms", "p50 ms", digits=1),
        Figure("p99_ms", "p99 ms", digits=1),
        Figure("p999_ms", "p99.9 ms", digits=1),
        Figure("fed_p99_ms", "fed, p99 ms", digits=1),
        Figure("cpu_s_per_s", "CPU s/s", digits=2),
    )

    def __init__(self, cluster: Cluster, directory: Path, rate: float, seconds: int, warm: int, seed: int) -> None:
        """The input is the same for each seed."""
        super().__init__(cluster, directory)
        self._rate, self._seconds, self._warm = rate, seconds, warm

    @property
    def title(self) -> str:
        return f"{self._rate:,.0f} records/s for {self._seconds} s, commits every {COMMIT_INTERVAL_MS} ms"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Nothing: each run has an input of its own."""

    def input(self, contender: Contender, run: str) -> str:
        return f"{run}-input"

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        self._cluster.create(job.input, self.partitions, FOREVER)
        servers, keys = self._cluster.bootstrap_servers, keys_of(self.partitions)
        feed = Paced(servers, job.input, dict(enumerate(keys)), self._rate)
        outputs = Outputs(servers, job.output, range(self.partitions))
        with Measured(contender.command(job), self._log_file(job)) as process, thread(outputs, "outputs"):
            with thread(feed, "feed"):
                process.wait(lambda: self._in_step(len(feed.given), len(outputs.seen)), self.timeout_s)
                start = time.time() + self._warm
                end = start + self._seconds
                process.wait(lambda: time.time() >= end, self._warm + self._seconds + END_S)
            process.wait(lambda: len(outputs.seen) >= len(feed.given), END_S)
            usage = process.stop()
        return self._figures(feed, latencies(feed.given, outputs.seen, start, end), usage, start)

    def _in_step(self, given: int, seen: int) -> bool:
        """Whether what came in while the process started is done, but for about a second's."""
        return seen > 0 and given - seen < self._rate

    def _figures(self, feed: Paced, times_ms: Sequence[float], usage: Usage, start: float) -> dict[str, float]:
        return {
            "records": float(len(times_ms)),
            "p50_ms": percentile(times_ms, 50),
            "p99_ms": percentile(times_ms, 99),
            "p999_ms": percentile(times_ms, 99.9),
            "fed_p99_ms": 1000 * percentile(sorted(feed.took_s), 99),
            "cpu_s_per_s": usage.cpu_s_between(start, start + self._seconds) / self._seconds,
        }
