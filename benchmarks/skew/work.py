"""One partition with a backlog, 15 others that get `--rate` records a second each: how long those wait.

The program is that of `latency`, commits are every 100 ms. The backlog lies in its partition when the process starts;
the other partitions get records from the first commit of the backlog until all of it is committed.

| figure | what |
|---|---|
| p50, p99, longest | of the others' time from the call that made a record to the moment when its output was read |
| backlog | its records per second, from its first commit to its last one |
| CPU | CPU seconds of the process per second in that time |

*Guarantees*: a run counts only when each input of the others has its output, once, and the backlog has as many outputs
as records.
*Assumes*: as `paced.py`; the broker is ours alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.cluster import FOREVER, Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.fed import TIMEOUT_S, Fresh
from benchmarks.job import Job
from benchmarks.moves.traffic import thread
from benchmarks.paced import Outputs, Paced, keys_of, latencies, percentile
from benchmarks.process import Measured
from benchmarks.rows import Figure

END_S = 60.0
HOT = 0
"""The partition with the backlog."""
VALUE_BYTES = 100
HOT_KEYS, QUIET_KEYS = 1_000, 10


class Skew(Fresh):
    """One partition with a backlog among quiet ones: how long the records of those wait."""

    name = "skew"
    partitions = 16
    asked: Mapping[str, str] = {"commit_interval_ms": "100"}
    figures: Sequence[Figure] = (
        Figure("p50_ms", "p50 ms", digits=1),
        Figure("p99_ms", "p99 ms", digits=1),
        Figure("longest_ms", "longest ms", digits=1),
        Figure("backlog_records_per_s", "backlog records/s"),
        Figure("cpu_s_per_s", "CPU s/s", digits=2),
        Figure("rss_mb", "peak RSS MB"),
    )

    def __init__(self, cluster: Cluster, directory: Path, records: int, rate: float, seed: int) -> None:
        """The input is the same for each seed."""
        super().__init__(cluster, directory)
        self._records, self._rate = records, rate
        self._hot = keys_of(self.partitions, HOT_KEYS)[HOT]
        self._quiet = {at: keys for at, keys in enumerate(keys_of(self.partitions, QUIET_KEYS)) if at != HOT}

    @property
    def title(self) -> str:
        return f"{self._records:,} records in one partition, {self._rate:g} records/s in each of {len(self._quiet)}"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Nothing: each run has an input of its own."""

    def input(self, contender: Contender, run: str) -> str:
        return f"{run}-input"

    def backlog(self, topic: str) -> Iterator[Row]:
        """What lies in the one partition."""
        now_ms, filler = int(time.time() * 1000), b"x" * VALUE_BYTES
        for number in range(self._records):
            yield topic, HOT, self._hot[number % HOT_KEYS], filler, now_ms, None

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        self._cluster.create(job.input, self.partitions, FOREVER)
        self._cluster.fill(self.backlog(job.input))
        servers = self._cluster.bootstrap_servers
        feed = Paced(servers, job.input, self._quiet, self._rate * len(self._quiet))
        outputs = Outputs(servers, job.output, [*self._quiet])
        with (
            self._cluster.positions(job.application_id, job.input) as committed,
            Measured(contender.command(job), self._log_file(job)) as process,
            thread(outputs, "outputs"),
        ):
            process.wait(lambda: committed()[HOT] > 0, TIMEOUT_S)
            start, before = time.time(), committed()[HOT]
            with thread(feed, "feed"):
                process.wait(lambda: committed()[HOT] >= self._records, TIMEOUT_S)
                end = time.time()
            process.wait(lambda: len(outputs.seen) >= len(feed.given), END_S)
            usage = process.stop()
        self._check(job.output, self._records + len(feed.given))
        times_ms = latencies(feed.given, outputs.seen, start, end)
        return {
            "records": float(len(times_ms)),
            "p50_ms": percentile(times_ms, 50),
            "p99_ms": percentile(times_ms, 99),
            "longest_ms": times_ms[-1],
            "backlog_records_per_s": (self._records - before) / (end - start),
            "cpu_s_per_s": usage.cpu_s_between(start, end) / (end - start),
            "rss_mb": usage.peak_rss_mb,
        }

    def _check(self, topic: str, records: int) -> None:
        if (found := sum(1 for _ in self._cluster.read(topic))) != records:
            raise BenchmarkError(f"{found:,} outputs of {records:,} inputs")
