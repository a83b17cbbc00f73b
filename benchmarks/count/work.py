"""Count and sum per key, with a changelog, one output per record.

`records_per_s`: from the first output in the log to the last one; so neither start-up nor the wait for the last commit
is in it, all commits in between are. `warm_...`: the second half of the outputs. The times are the broker's
(`LogAppendTime`), the same clock for all contenders.

*Guarantees*: a run counts only when each key's last output, and the fold of the changelog, are what a plain count of
the input gives, and when there are exactly as many outputs as records.
*Assumes*: no retries by failure: the broker stays up.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.cluster import Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.count import STORE
from benchmarks.count.data import Data, Total, differences
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.process import Measured, Usage
from benchmarks.rows import Figure

PARTITIONS = 4
TIMEOUT_S = 600.0
FOREVER = {"retention.ms": "-1"}
STAMPED = {**FOREVER, "message.timestamp.type": "LogAppendTime"}


class Count:
    """The work `count`."""

    name = "count"
    figures = (
        Figure("records_per_s", "records/s", compared=True),
        Figure("warm_records_per_s", "warm records/s", compared=True),
        Figure("cpu_s_per_million", "CPU s/million", digits=1),
        Figure("warm_cpu_s_per_million", "warm CPU s/million", digits=1),
        Figure("rss_mb", "peak RSS MB"),
    )

    def __init__(self, cluster: Cluster, directory: Path, records: int, keys: int, seed: int) -> None:
        self._cluster, self._directory = cluster, directory
        self._records, self._keys, self._seed = records, keys, seed
        self._expected: dict[int, dict[bytes, Total]] = {}
        self._runs = 0

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Write the inputs that they need; one topic for those with equally many records."""
        for times in sorted({contender.times for contender in contenders}):
            data = self._data(times)
            self._cluster.create(self._input(times), PARTITIONS, FOREVER)
            self._cluster.fill(self._rows(data, self._input(times)))
            self._expected[times] = data.totals()

    def measure(self, contender: Contender, guarantee: str) -> dict[str, float]:
        """One run, everything fresh; its figures by name."""
        self._runs += 1
        job = Job(
            bootstrap_servers=self._cluster.bootstrap_servers,
            application_id=f"count-{self._runs}",
            guarantee=guarantee,
            input=self._input(contender.times),
            output=f"count-{self._runs}-output",
            state_dir=str(self._directory / f"count-{self._runs}"),
        )
        self._cluster.create(job.output, PARTITIONS, STAMPED)
        try:
            usage = self._run(contender, job)
            return self._judge(contender, job, usage)
        except BenchmarkError as error:
            raise BenchmarkError(f"{contender.name}, {guarantee}: {error}") from error
        finally:
            self._cluster.delete(f"{job.application_id}-")

    def _run(self, contender: Contender, job: Job) -> Usage:
        records = self._data(contender.times).records
        log_file = self._directory / f"{job.application_id}.log"
        with (
            self._cluster.committed(job.application_id, job.input) as committed,
            Measured(contender.command(job), log_file) as process,
        ):
            process.wait(lambda: committed() >= records, TIMEOUT_S)
            return process.stop()

    def _judge(self, contender: Contender, job: Job, usage: Usage) -> dict[str, float]:
        expected = self._expected[contender.times]
        times_ms, outputs = self._fold(job.output)
        _, changelog = self._fold(f"{job.application_id}-{STORE}-changelog")
        records = self._data(contender.times).records
        if len(times_ms) != records:
            raise BenchmarkError(f"{len(times_ms)} outputs for {records} records")
        for where, found in (("output", outputs), ("changelog", changelog)):
            if wrong := differences(expected, found):
                raise BenchmarkError(f"the {where} is wrong: {'; '.join(wrong)}")
        return figures(sorted(times_ms), usage)

    def _fold(self, topic: str) -> tuple[list[int], dict[bytes, Total]]:
        """The times of a topic's records, ms, and each key's last total."""
        times_ms: list[int] = []
        last: dict[bytes, bytes] = {}
        for message in self._cluster.read(topic):
            times_ms.append(message.timestamp()[1])
            last[message.key() or b""] = message.value() or b""
        return times_ms, {key: Total.of(data) for key, data in last.items()}

    def _data(self, times: int) -> Data:
        return Data(self._records * times, self._keys, self._seed)

    def _input(self, times: int) -> str:
        return f"sales-{times}"

    def _rows(self, data: Data, topic: str) -> Iterator[Row]:
        now_ms = int(time.time() * 1000)
        for number, (key, value) in enumerate(data.values()):
            yield topic, -1, key, value, now_ms + number // 1000, None


def figures(times_ms: list[int], usage: Usage) -> dict[str, float]:
    """What a run says, by the times of its outputs (ms, ascending) and what its process used."""
    records = len(times_ms)
    first, half, last = (times_ms[at] / 1000 for at in (0, records // 2, -1))
    warm = records - records // 2
    if not first < half < last:
        raise BenchmarkError(f"{records} records are too few to be measured: give more of them (--records)")
    return {
        "records": float(records),
        "records_per_s": records / (last - first),
        "warm_records_per_s": warm / (last - half),
        "cpu_s_per_million": usage.total_cpu_s * 1e6 / records,
        "warm_cpu_s_per_million": usage.cpu_s_between(half, last) * 1e6 / warm,
        "rss_mb": usage.peak_rss_mb,
    }
