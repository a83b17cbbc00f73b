"""Restore a store from its changelog: 16-byte keys, 100-byte values, four partitions, one thread.

`records_per_s`: from the first partition's start to the last one's end, as the contender's own listener tells.
`idle_cpu`: CPU seconds per second in the seconds that follow, when there is nothing left to do.

*Guarantees*: a run counts only when all records of the changelog were restored.
*Assumes*: contenders run one after the other.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.cluster import COMPACTED, FOREVER, Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.fed import Fresh
from benchmarks.job import Job
from benchmarks.peers.declared import LOGGED
from benchmarks.process import Measured
from benchmarks.restore import ENDED, STARTED, STORE
from benchmarks.rows import Figure

VALUE_BYTES = 100
TIMEOUT_S, IDLE_S = 300.0, 4.0


class Restore(Fresh):
    """The work `restore`."""

    name = "restore"
    timeout_s = TIMEOUT_S
    figures: Sequence[Figure] = (
        Figure("records_per_s", "records/s", compared=True),
        Figure("cpu_s_per_million", "CPU s/million", digits=1),
        Figure("idle_cpu", "idle CPU s/s", digits=3),
        Figure("rss_mb", "peak RSS MB"),
    )

    def __init__(self, cluster: Cluster, directory: Path, records: int, seed: int) -> None:
        super().__init__(cluster, directory)
        self._records, self._seed = records, seed

    @property
    def title(self) -> str:
        return f"{self._records:,} records"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Nothing: each run has a changelog of its own, as Kafka Streams stays in its group when it ends."""

    def input(self, contender: Contender, run: str) -> str:
        return f"{run}-input"

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        """On an empty disk."""
        log = contender.changelog or LOGGED
        given = rows(log.of(job, STORE), self._records, self._seed, log.headers)
        return self._restored(contender, job, given, self._records)

    def _restored(self, contender: Contender, job: Job, log: Iterable[Row], records: int) -> dict[str, float]:
        """The figures of a restoration of so many records, those of `log`."""
        self._cluster.create(job.input, self.partitions, FOREVER)
        self._cluster.create((contender.changelog or LOGGED).of(job, STORE), self.partitions, COMPACTED)
        self._cluster.fill(log)
        Path(job.state_dir).mkdir()
        log_file = self._log_file(job)
        with Measured(contender.command(job), log_file) as process:
            process.wait(lambda: len(told(log_file, ENDED)) >= self.partitions, self.timeout_s)
            calm = time.monotonic() + 1 + IDLE_S
            process.wait(lambda: time.monotonic() > calm, self.timeout_s)
            usage = process.stop()
        started, ended = told(log_file, STARTED), told(log_file, ENDED)
        restored = sum(count for _, count in ended)
        if restored != records:
            raise BenchmarkError(f"{restored} of {records} records were restored")
        begin, end = min(at for at, _ in started) / 1000, max(at for at, _ in ended) / 1000
        return {
            "records": float(restored),
            "took_ms": 1000 * (end - begin),
            "records_per_s": restored / max(end - begin, 0.001),
            "cpu_s_per_million": usage.cpu_s_between(begin, end) * 1e6 / restored,
            "idle_cpu": usage.cpu_s_between(end + 1, end + 1 + IDLE_S) / IDLE_S,
            "rss_mb": usage.peak_rss_mb,
        }


def changelog_of(job: Job) -> str:
    """The topic that is restored, of ours and of Kafka Streams."""
    return LOGGED.of(job, STORE)


def rows(topic: str, records: int, seed: int, headers: Sequence[tuple[str, bytes]] = ()) -> Iterator[Row]:
    """A changelog: each key once, in an order by seed."""
    rng, now_ms = random.Random(seed), int(time.time() * 1000)
    order = list(range(records))
    rng.shuffle(order)
    filler = rng.randbytes(VALUE_BYTES * 64)
    for key in order:
        at = key * 7 % (len(filler) - VALUE_BYTES)
        yield topic, -1, b"key-%012d" % key, filler[at : at + VALUE_BYTES], now_ms, list(headers) or None


def told(log_file: Path, what: str) -> list[tuple[int, int]]:
    """Times (ms since the epoch) and counts, 0 where there is none, that the contender has printed so far."""
    text = log_file.read_text("utf-8", "replace") if log_file.exists() else ""
    return [(int(at), int(count or 0)) for at, count in re.findall(rf"^{what} (\d+) ?(\d*)$", text, re.MULTILINE)]
