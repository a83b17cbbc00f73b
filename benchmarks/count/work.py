"""Count and sum per key, with a changelog, one output per record.

`records_per_s`: from the first output in the log to the last one; so neither start-up nor the wait for the last commit
is in it, all commits in between are. `warm_...`: the second half of the outputs. The times are the broker's
(`LogAppendTime`), the same clock for all contenders.

*Guarantees*: a run counts only when the outputs of each key, and its changelog, are the running totals that a plain
count of the input gives: all of them, once each, in order, in one partition.
*Assumes*: no retries by failure: the broker stays up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.cluster import Cluster, Row
from benchmarks.count import STORE
from benchmarks.count.data import Data, Expected, Output
from benchmarks.errors import BenchmarkError
from benchmarks.fed import Fed
from benchmarks.job import Job
from benchmarks.process import Usage
from benchmarks.rows import Figure

FIGURES = (
    Figure("records_per_s", "records/s", compared=True),
    Figure("warm_records_per_s", "warm records/s", compared=True),
    Figure("cpu_s_per_million", "CPU s/million", digits=1),
    Figure("warm_cpu_s_per_million", "warm CPU s/million", digits=1),
    Figure("rss_mb", "peak RSS MB"),
)


class Count(Fed):
    """The work `count`."""

    name = "count"
    figures: Sequence[Figure] = FIGURES

    def __init__(self, cluster: Cluster, directory: Path, records: int, keys: int, seed: int) -> None:
        super().__init__(cluster, directory)
        self._records, self._keys, self._seed = records, keys, seed
        self._expected: dict[int, Expected] = {}

    @property
    def title(self) -> str:
        return f"{self._records:,} records, {self._keys:,} keys"

    def records(self, size: int) -> int:
        return self._records * size

    def rows(self, size: int, topic: str) -> Iterator[Row]:
        now_ms = int(time.time() * 1000)
        for number, (key, value) in enumerate(self._data(size).values()):
            yield topic, -1, key, value, now_ms + number // 1000, None

    def judge(self, job: Job, size: int, usage: Usage) -> dict[str, float]:
        self._check(size, "changelog", f"{job.application_id}-{STORE}-changelog")
        return figures(sorted(self._check(size, "output", job.output)), usage)

    def _check(self, size: int, what: str, topic: str) -> list[int]:
        """When the topic's records were written, ms. `BenchmarkError` unless they are what is expected."""
        times_ms: list[int] = []

        def found() -> Iterator[Output]:
            for message in self._cluster.read(topic):
                times_ms.append(message.timestamp()[1])
                yield message.key() or b"", message.value() or b"", message.partition() or 0

        if size not in self._expected:
            self._expected[size] = Expected(self._data(size))
        if wrong := self._expected[size].differences(found()):
            raise BenchmarkError(f"the {what} is wrong: {'; '.join(wrong)}")
        return times_ms

    def _data(self, size: int) -> Data:
        return Data(self.records(size), self._keys, self._seed)


def figures(times_ms: list[int], usage: Usage, inputs: int | None = None) -> dict[str, float]:
    """What a run says, by the times of its outputs (ms, ascending) and what its process used. `inputs`: the number of
    records, where each has not just one output."""
    outputs = len(times_ms)
    records = outputs if inputs is None else inputs
    if not outputs or not times_ms[0] < times_ms[outputs // 2] < times_ms[-1]:
        raise BenchmarkError(f"{outputs} outputs are too few to be measured: give more records (--records)")
    first, half, last = (times_ms[at] / 1000 for at in (0, outputs // 2, -1))
    warm = records * (outputs - outputs // 2) / outputs
    return {
        "records": float(records),
        "records_per_s": records / (last - first),
        "warm_records_per_s": warm / (last - half),
        "cpu_s_per_million": usage.total_cpu_s * 1e6 / records,
        "warm_cpu_s_per_million": usage.cpu_s_between(half, last) * 1e6 / warm,
        "rss_mb": usage.peak_rss_mb,
    }
