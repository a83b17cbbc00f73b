"""Ten milliseconds of work per record in 16 partitions, on one instance with one stream thread.

`records_per_s`: from the first output in the log to the last one, by the broker's clock (`LogAppendTime`).

*Guarantees*: a run counts only when every input has its output, once, and those of a key are in their inputs' order.
*Assumes*: as `fed.py`.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.blocking import DONE
from benchmarks.cluster import Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.fed import Fed
from benchmarks.job import Job
from benchmarks.process import Usage
from benchmarks.rows import Figure


class Blocking(Fed):
    """Ten milliseconds of work per record, on one stream thread of one instance."""

    name = "blocking"
    partitions = 16
    figures = (
        Figure("records_per_s", "records/s", compared=True),
        Figure("cpu_ms_per_record", "CPU ms/record", digits=2),
        Figure("rss_mb", "peak RSS MB"),
    )

    def __init__(self, cluster: Cluster, directory: Path, records: int, threads: int, work: str, seed: int) -> None:
        super().__init__(cluster, directory)
        self._records, self._seed = records - records % self.partitions, seed
        self.asked: Mapping[str, str] = {"threads": str(threads), "work": work}

    @property
    def title(self) -> str:
        threads, work = self.asked["threads"], self.asked["work"]
        return f"{self._records:,} records, 10 ms each ({work}), {threads} processing threads"

    def records(self, size: float) -> int:
        return round(self._records * size)

    def rows(self, size: float, topic: str) -> Iterator[Row]:
        """Equally many for each partition, which has a key of its own, in an order by seed."""
        now_ms, rng = int(time.time() * 1000), random.Random(self._seed)
        for first in range(0, self.records(size), self.partitions):
            for partition in rng.sample(range(self.partitions), self.partitions):
                yield topic, partition, key_of(partition), b"%d" % (first + partition), now_ms, None

    def judge(self, contender: Contender, job: Job, usage: Usage) -> dict[str, float]:
        times_ms: list[int] = []
        found: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for message in self._cluster.read(job.output):
            times_ms.append(message.timestamp()[1])
            found[message.key() or b""].append(message.value() or b"")
        if wrong := differences(expected(self.records(self.size(contender)), self.partitions), found):
            raise BenchmarkError(f"the output is wrong: {'; '.join(wrong)}")
        return figures(times_ms, usage)


def key_of(partition: int) -> bytes:
    """The key of all inputs of a partition."""
    return b"partition-%d" % partition


def expected(records: int, partitions: int) -> dict[bytes, list[bytes]]:
    """The outputs' values, by key, in order."""
    return {
        key_of(partition): [b"%d%s" % (number, DONE) for number in range(partition, records, partitions)]
        for partition in range(partitions)
    }


def differences(wanted: Mapping[bytes, Sequence[bytes]], found: Mapping[bytes, Sequence[bytes]]) -> list[str]:
    """In words, key by key: where the outputs aren't the inputs', once each and in order."""
    said = []
    for key in sorted(wanted.keys() | found.keys()):
        want, have = wanted.get(key, ()), found.get(key, ())
        pairs = enumerate(zip(want, have, strict=False))
        at = next((at for at, (one, other) in pairs if one != other), min(len(want), len(have)))
        if at < max(len(want), len(have)):
            said.append(f"{key!r}: {len(have)} outputs of {len(want)}, right up to number {at}")
    return said


def figures(times_ms: Sequence[int], usage: Usage) -> dict[str, float]:
    """What a run says, by the times of its outputs (ms) and what its process used."""
    took_s = (max(times_ms, default=0) - min(times_ms, default=0)) / 1000
    if not took_s:
        raise BenchmarkError(f"{len(times_ms)} records are too few to be measured: give more of them (--records)")
    return {
        "records": float(len(times_ms)),
        "records_per_s": len(times_ms) / took_s,
        "cpu_ms_per_record": usage.total_cpu_s * 1e3 / len(times_ms),
        "rss_mb": usage.peak_rss_mb,
    }
