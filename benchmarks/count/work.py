"""Count and sum per key, with a changelog, one output per record.

`records_per_s`: from the first output in the log to the last one; so neither start-up nor the wait for the last commit
is in it, all commits in between are. `warm_...`: the second half of the outputs. The times are the broker's
(`LogAppendTime`), the same clock for all contenders. `bytes_per_record`: the size of the logs of output and changelog,
by the records of the input.

*Guarantees*: a run counts only when the outputs of each key, and its changelog, are the running totals that a plain
count of the input gives: all of them, once each, in order, in one partition. Where a contender's topic has the last one
per key and commit only: some of them, the last one among them.
*Assumes*: no retries by failure: the broker stays up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.cluster import Cluster, Row
from benchmarks.contenders import CHANGELOG, OUTPUT, Contender
from benchmarks.count import STORE
from benchmarks.count.data import VALUE_BYTES, Data, Expected, Output, total_of
from benchmarks.errors import BenchmarkError
from benchmarks.fed import Fed
from benchmarks.job import COMMIT_INTERVAL_MS, Job
from benchmarks.process import Usage
from benchmarks.rows import Figure

BYTES = Figure("bytes_per_record", "bytes produced per record")
FIGURES = (
    Figure("records_per_s", "records/s", compared=True),
    Figure("warm_records_per_s", "warm records/s", compared=True),
    Figure("cpu_s_per_million", "CPU s/million", digits=1),
    Figure("warm_cpu_s_per_million", "warm CPU s/million", digits=1),
    Figure("rss_mb", "peak RSS MB"),
    BYTES,
)


Written = tuple[int, float]
"""When an output was written, in ms, and how many records of the input it stands for."""


class Count(Fed):
    """The work `count`."""

    name = "count"
    figures: Sequence[Figure] = FIGURES

    def __init__(
        self, cluster: Cluster, directory: Path, records: int, keys: int, seed: int,
        commit_interval_ms: int = int(COMMIT_INTERVAL_MS), partitions: int = 4, value_bytes: int = VALUE_BYTES,
        zipf: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(cluster, directory)
        self.partitions, self._value_bytes, self._zipf = partitions, value_bytes, zipf
        self.asked: Mapping[str, str] = {"commit_interval_ms": str(commit_interval_ms)}
        self._records, self._keys, self._seed = records, keys, seed
        self._expected: dict[float, Expected] = {}

    @property
    def title(self) -> str:
        interval = self.asked["commit_interval_ms"]
        return f"{self._records:,} records, {self._keys:,} keys, a commit every {interval} ms"

    def records(self, size: float) -> int:
        return round(self._records * size)

    def rows(self, size: float, topic: str) -> Iterator[Row]:
        now_ms = int(time.time() * 1000)
        for number, (key, value) in enumerate(self._data(size).values()):
            yield topic, -1, key, value, now_ms + number // 1000, None

    def judge(self, contender: Contender, job: Job, usage: Usage) -> dict[str, float]:
        if (log := contender.changelog) is not None:
            self._check(contender, CHANGELOG, log.of(job, STORE), log.key)
        written = sorted(self._check(contender, OUTPUT, job.output))
        return {**figures(written, usage), **self._produced(contender, job, self.records(self.size(contender)))}

    def _check(
        self, contender: Contender, what: str, topic: str, key_of: Callable[[bytes], bytes] = bytes
    ) -> list[Written]:
        """When each of the topic's records was written, and how many of the input it stands for. `BenchmarkError`
        unless they are what is expected. `key_of`: the key of the count that a record's key means."""
        size, written, counts = self.size(contender), list[Written](), dict[bytes, int]()

        def found() -> Iterator[Output]:
            for message in self._cluster.read(topic):
                key, value = key_of(message.key() or b""), message.value() or b""
                count = (total_of(value) or (0, 0))[0]
                written.append((message.timestamp()[1], count - counts.get(key, 0)))
                counts[key] = count
                yield key, value, message.partition() or 0

        if size not in self._expected:
            self._expected[size] = Expected(self._data(size))
        if wrong := self._expected[size].differences(found(), what in contender.thin):
            raise BenchmarkError(f"the {what} is wrong: {'; '.join(wrong)}")
        return written

    def _data(self, size: float) -> Data:
        return Data(self.records(size), self._keys, self._seed, self._value_bytes, self._zipf)


def figures(written: Sequence[Written], usage: Usage) -> dict[str, float]:
    """What a run says, by its outputs, in the order of their times, and what its process used."""
    outputs = len(written)
    if not outputs or not written[0][0] < written[outputs // 2][0] < written[-1][0]:
        raise BenchmarkError(f"{outputs} outputs are too few to be measured: give more records (--records)")
    first, half, last = (written[at][0] / 1000 for at in (0, outputs // 2, -1))
    records = sum(share for _, share in written)
    warm = sum(share for _, share in written[outputs // 2 :])
    return {
        "records": float(records),
        "records_per_s": records / (last - first),
        "warm_records_per_s": warm / (last - half),
        "cpu_s_per_million": usage.total_cpu_s * 1e6 / records,
        "warm_cpu_s_per_million": usage.cpu_s_between(half, last) * 1e6 / warm,
        "rss_mb": usage.peak_rss_mb,
    }
