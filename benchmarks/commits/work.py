"""A backlog, and brokers that answer commits late: whether tasks with input are processed meanwhile.

The program counts records per key, in a store with a changelog, with one output per record. All of the input lies
ready. Once the first commit is seen nothing counts for `--warm` seconds, then everything does for `--seconds`, and in
these a proxy has the answer to each commit come `--late` ms late: to EndTxn under exactly once, to OffsetCommit under
at least once. Then the process is ended.

| figure | what |
|---|---|
| records/s | committed, from the first commit seen to the last one; beside it the share of its own, 0 ms late |
| longest pause | the longest time in which no task began with a record, by the contender's own clock |
| of a task | the same of one task: its waiting for a turn, and for the client to deliver its records, is in it |
| standing | share of the time that is in pauses of more than 50 ms of all tasks |
| commits/s | answers that the proxy has seen, of all producers or members |
| bytes produced | the size of the logs of output and changelog, by the records committed in the whole run |
| twice | records that were processed and not committed by that, in the whole run |
| CPU s/million | of the process, per record processed |
| peak RSS, growth | of the whole run; in the seconds: eight bytes of it for each record are the contender's notes |

*Guarantees*: a run counts only when output and changelog are exactly what the committed records give.
*Assumes*: the broker is ours alone. Linux.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.cluster import FOREVER, Cluster, Row
from benchmarks.commits import STORE, TIMES
from benchmarks.commits.data import VALUE, Input, Output
from benchmarks.commits.pauses import Window, committed_per_s, figures, with_input
from benchmarks.commits.times import read
from benchmarks.contenders import CHANGELOG, OUTPUT, Contender
from benchmarks.count.work import BYTES
from benchmarks.errors import BenchmarkError
from benchmarks.fed import Fresh
from benchmarks.job import AT_LEAST_ONCE, EXACTLY_ONCE, Job
from benchmarks.process import Measured, Sample, Usage
from benchmarks.rows import Figure
from compat_tests.network.faults import Fault
from compat_tests.network.frames import Api
from compat_tests.network.proxy import KafkaProxy

START_S, END_S = 300.0, 60.0
INPUT = "commits-input"
UNDISTURBED = "{}, 0 ms late"
ANSWERED = {EXACTLY_ONCE: Api.END_TXN, AT_LEAST_ONCE: Api.OFFSET_COMMIT}
"""The request that ends a commit, by guarantee."""


class Commits(Fresh):
    """Commits whose answers come late: records/s, and the longest pause of a task that has input."""

    name = "commits"
    figures: Sequence[Figure] = (
        Figure("records_per_s", "records/s", compared=True, yardstick=UNDISTURBED),
        Figure("pause_ms", "longest pause ms", digits=1),
        Figure("task_pause_ms", "of a task ms", digits=1),
        Figure("standing", "standing %", digits=1),
        Figure("commits_per_s", "commits/s", digits=1),
        BYTES,
        Figure("twice", "twice"),
        Figure("cpu_s_per_million", "CPU s/million", digits=1),
        Figure("rss_mb", "peak RSS MB"),
        Figure("rss_growth_mb", "growth MB"),
    )

    def __init__(
        self, cluster: Cluster, directory: Path, records: int, keys: int, partitions: int, seconds: int, warm: int,
        seed: int, commit_interval_ms: int,
    ) -> None:  # fmt: skip
        super().__init__(cluster, directory)
        self.partitions = partitions
        self.asked: Mapping[str, str] = {"commit_interval_ms": str(commit_interval_ms)}
        self._keys, self._seconds, self._warm = keys, seconds, warm
        self._input = Input(partitions, records, keys, seed)

    @property
    def title(self) -> str:
        interval = self.asked["commit_interval_ms"]
        return f"{self._seconds} s, {self.partitions} partitions, {self._keys:,} keys, a commit every {interval} ms"

    def input(self, contender: Contender, run: str) -> str:
        return INPUT

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """The backlog, the same for all."""
        self._cluster.create(INPUT, self.partitions, FOREVER)
        self._cluster.fill(self.rows())

    def rows(self) -> Iterator[Row]:
        """What lies in the input."""
        now_ms = int(time.time() * 1000)
        return ((INPUT, partition, key, VALUE, now_ms, None) for partition, key in self._input)

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        proxy = self._cluster.proxy
        told = replace(job, bootstrap_servers=proxy.bootstrap_servers)
        looks: list[tuple[int, int]] = []

        def look() -> bool:
            looks.append((time.monotonic_ns(), sum(committed().values())))
            return looks[-1][0] >= start + self._seconds * 1e9

        with (
            self._cluster.positions(job.application_id, job.input) as committed,
            Measured(contender.command(told), self._log_file(job)) as process,
        ):
            process.wait(lambda: sum(committed().values()) > 0, START_S)
            until = time.monotonic() + self._warm
            process.wait(lambda: time.monotonic() >= until, self._warm + END_S)
            with late(proxy, job.guarantee, contender.late_ms) as answers:
                start, start_s = time.monotonic_ns(), time.time()
                process.wait(look, self._seconds + END_S)
                window, commits = Window(start, time.monotonic_ns()), answers.hits
            usage, ends = process.stop(), committed()
        self._check(contender, job, ends)
        found = self._times(job, usage, start_s, window, ends, looks)
        produced = self._produced(contender, job, sum(ends.values()))
        return {**found, **produced, "commits_per_s": commits / window.seconds}

    def _times(
        self, job: Job, usage: Usage, start_s: float, window: Window, ends: Mapping[int, int],
        looks: Sequence[tuple[int, int]],
    ) -> dict[str, float]:  # fmt: skip
        """What the contender's own times say, what was committed meanwhile, and what the process used."""
        times = read(Path(job.state_dir + TIMES))
        measured = with_input(window, times, ends, self._input.each)
        found, end_s = figures(measured, times), start_s + measured.seconds
        processed = found["processed_per_s"] * measured.seconds
        return {
            **found,
            "seconds": measured.seconds,
            "records_per_s": committed_per_s(measured, looks),
            "twice": float(sum(map(len, times.values())) - sum(ends.values())),
            "cpu_s_per_million": usage.cpu_s_between(start_s, end_s) * 1e6 / max(1.0, processed),
            "rss_mb": usage.peak_rss_mb,
            "rss_growth_mb": growth_mb(usage.samples, start_s, end_s),
        }

    def _check(self, contender: Contender, job: Job, ends: Mapping[int, int]) -> None:
        """`BenchmarkError` unless output and changelog are what so many records of each partition give."""
        for what, topic in ((OUTPUT, job.output), (CHANGELOG, f"{job.application_id}-{STORE}-changelog")):
            if wrong := self._input.differences(ends, self._outputs(topic), what in contender.thin):
                raise BenchmarkError(f"the {what} is wrong: {'; '.join(wrong)}")

    def _outputs(self, topic: str) -> Iterator[Output]:
        for message in self._cluster.read(topic):
            yield message.partition() or 0, message.key() or b"", message.value() or b""


@contextmanager
def late(proxy: KafkaProxy, guarantee: str, late_ms: int) -> Iterator[Fault]:
    """Answers to commits come so much later until the end of the block; the fault counts them, also those 0 ms late."""
    fault = proxy.delay(late_ms / 1000, ANSWERED[guarantee])
    try:
        yield fault
    finally:
        fault.end()


def growth_mb(samples: Sequence[Sample], start_s: float, end_s: float) -> float:
    """How much more memory a process had at the end of a time than at its beginning."""
    inside = [sample.rss_mb for sample in samples if start_s <= sample.at <= end_s]
    return inside[-1] - inside[0] if inside else 0.0
