"""So many tasks on one instance: what their number costs.

An eighth of the tasks have a store. A backlog of `--records` records lies in their partitions, equally many in each;
when all is committed the instance idles for `--seconds`. Commits are every second.

| figure | what |
|---|---|
| busy, idle | the longest time between two looks of a loop at its group, until the last output; when it idles |
| longest gap | the same in all that time, with what Kafka's calls took, which don't count in the other two |
| CPU/record | CPU time of the process per record of the backlog's second half |
| commit, longest commit | median and longest time from a commit's beginning to its end, during the backlog |
| idle CPU | CPU seconds per second, from five seconds after the last commit |

*Guarantees*: a run counts only when each record of the backlog has an output.
*Assumes*: the broker is ours alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.cluster import FOREVER, Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.count.work import figures as of_outputs
from benchmarks.errors import BenchmarkError
from benchmarks.fed import STAMPED, TIMEOUT_S, Fresh
from benchmarks.idle import PLAIN, STATEFUL, STATEFUL_SHARE
from benchmarks.idle.work import SETTLE_S, START_S
from benchmarks.job import Job
from benchmarks.looks import LOOKED, SAID_LATE_S, longest_look
from benchmarks.moves.timeline import worst
from benchmarks.process import Measured
from benchmarks.rows import Figure

COMMITTED = re.compile(r"^(\d+\.\d+) .*: a commit took (\d+\.\d+) s$", re.MULTILINE)
KEYS = 100
"""Of each partition."""


class Tasks(Fresh):
    """Few tasks and many on one instance: what waiting, working and committing cost then."""

    name = "tasks"
    settings = STAMPED
    figures: Sequence[Figure] = (
        Figure("busy_ms", "busy ms"),
        Figure("idle_ms", "idle ms"),
        Figure("gap_ms", "longest gap ms"),
        Figure("records_per_s", "records/s"),
        Figure("cpu_us_per_record", "CPU µs/record", digits=1),
        Figure("commit_ms", "commit ms", digits=1),
        Figure("longest_commit_ms", "longest commit ms", digits=1),
        Figure("idle_cpu", "idle CPU s/s", digits=3),
    )

    def __init__(self, cluster: Cluster, directory: Path, records: int, seconds: int, seed: int) -> None:
        """The input is the same for each seed."""
        super().__init__(cluster, directory)
        self._records, self._seconds = records, seconds

    @property
    def title(self) -> str:
        return f"{self._records:,} records, then {self._seconds} s without input"

    def input(self, contender: Contender, run: str) -> str:
        return f"input-{contender.tasks}"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """An input with its backlog for each number of tasks."""
        for tasks in sorted({one.tasks for one in contenders}):
            for topic, partitions in topics_of(tasks).items():
                self._cluster.create(topic, partitions, FOREVER, START_S)
            self._cluster.fill(self.backlog(tasks))

    def each(self, tasks: int) -> int:
        """How many records each task gets."""
        return max(1, self._records // tasks)

    def backlog(self, tasks: int) -> Iterator[Row]:
        """What lies in the partitions of so many tasks."""
        now_ms, value = int(time.time() * 1000), b"x" * 100
        for number in range(self.each(tasks)):
            for topic, partitions in topics_of(tasks).items():
                for partition in range(partitions):
                    yield topic, partition, b"%d-%d" % (partition, number % KEYS), value, now_ms, None

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        records = self.each(contender.tasks) * contender.tasks
        plain, stateful = topics_of(contender.tasks)
        log_file = self._log_file(job)
        with (
            self._cluster.committed(job.application_id, plain) as of_plain,
            self._cluster.committed(job.application_id, stateful) as of_stateful,
            Measured(contender.command(job), log_file) as process,
        ):
            process.wait(lambda: of_plain() + of_stateful() >= records, TIMEOUT_S)
            idle = time.time() + SETTLE_S
            process.wait(lambda: time.time() >= idle + self._seconds, TIMEOUT_S)
            usage = process.stop()
        written = sorted((message.timestamp()[1], 1) for message in self._cluster.read(job.output))
        if len(written) != records:
            raise BenchmarkError(f"{len(written):,} outputs of {records:,} inputs")
        of_backlog = of_outputs(written, usage)
        first, last = written[0][0] / 1000, written[-1][0] / 1000
        return {
            **loops(log_file.read_text("utf-8", "replace"), Phases(first, last, idle, idle + self._seconds)),
            "records": float(records),
            "records_per_s": of_backlog["records_per_s"],
            "cpu_us_per_record": of_backlog["warm_cpu_s_per_million"],
            "idle_cpu": usage.cpu_s_between(idle, idle + self._seconds) / self._seconds,
            "rss_mb": usage.peak_rss_mb,
        }


def topics_of(tasks: int) -> dict[str, int]:
    """The inputs of so many tasks, each with its number of partitions. At least one task has a store."""
    stateful = max(1, tasks // STATEFUL_SHARE)
    return {f"input-{tasks}-{PLAIN}": tasks - stateful, f"input-{tasks}-{STATEFUL}": stateful}


@dataclass(frozen=True)
class Phases:
    """A run's times, s since the epoch: the first output, the last one, what is idle."""

    first: float
    last: float
    idle: float
    ended: float


def loops(log: str, at: Phases) -> dict[str, float]:
    """What the log says of looks at the group, and of commits, in ms."""
    looks = [(float(when), float(gap)) for when, gap, _ in LOOKED.findall(log)]
    commits = [float(took) for when, took in COMMITTED.findall(log) if at.first <= float(when) <= at.last + SAID_LATE_S]
    if not looks or not commits:
        raise BenchmarkError("the log tells of no look at the group, or of no commit: give it more records (--records)")
    return {
        "busy_ms": 1000 * longest_look(log, 0.0, at.last + SAID_LATE_S),
        "idle_ms": 1000 * longest_look(log, at.idle + SAID_LATE_S, at.ended),
        "gap_ms": 1000 * worst(gap for when, gap in looks if when <= at.ended),
        "commit_ms": 1000 * median(commits),
        "longest_commit_ms": 1000 * max(commits),
    }
