"""What the stores of many tasks cost one instance: its start, its handles, its disk, and a rebalance.

Each record is written into `--stores` stores of its task, each with a changelog. One instance is filled, looked at and
stopped; it starts with what it has, gets as much again, and is killed; it starts again. Then a second one joins, takes
half of the tasks, and leaves.

| figure | what |
|---|---|
| start | from the process's start until the last task has its first record, after a clean stop |
| opening | of that, what the databases took to open, their times added up |
| start, opening after kill | the same after `kill -9` |
| handles, threads, RSS | once all of the first input is processed: medians of looks for 3 s |
| written MB | to disks by the first process, from its start with an empty directory to its clean end |
| databases | that the first instance opened and closed while the second one came and left |
| longest turn | of the loop that looks at the group, in that time, outside Kafka's calls |

Kafka Streams' longest turn is the longest time between two polls of a thread.

*Guarantees*: a run counts only when half of the tasks moved there and back.
*Assumes*: the broker is ours alone. Linux.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.cluster import FOREVER, Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.fed import Fresh
from benchmarks.job import Job
from benchmarks.looks import SAID_LATE_S, longest_look
from benchmarks.moves.traffic import thread
from benchmarks.paced import Paced
from benchmarks.process import Measured
from benchmarks.rows import Figure
from benchmarks.stores import SECOND
from benchmarks.stores.looks import Look, begun, changes, databases, opening_s, seen, typical

TIMEOUT_S, LOOKS_S, SETTLE_S = 600.0, 3.0, 3.0
VALUE_BYTES, KEYS = 100, 2_000
"""`KEYS`: of each partition."""
RATE = 5.0
"""Records a second in each partition while tasks move."""


class Stores(Fresh):
    """Many tasks of several stores on one instance: start, handles, disk, memory, and a rebalance."""

    name = "stores"
    create_s = 60.0
    figures = (
        Figure("start_s", "start s", digits=2, compared=True),
        Figure("opening_s", "opening s", digits=2),
        Figure("killed_start_s", "after kill s", digits=2, compared=True),
        Figure("killed_opening_s", "opening s", digits=2),
        Figure("handles", "handles", compared=True),
        Figure("written_mb", "written MB", compared=True),
        Figure("rss_mb", "RSS MB", compared=True),
        Figure("threads", "threads"),
        Figure("databases", "databases"),
        Figure("turn_ms", "longest turn ms"),
    )

    def __init__(self, cluster: Cluster, directory: Path, stores: int, records: int, seed: int) -> None:
        super().__init__(cluster, directory)
        self.asked = {"work": str(stores)}
        self._stores, self._records, self._seed = stores, records, seed
        self._given = 0

    @property
    def title(self) -> str:
        return f"{self._records:,} records into each of {self._stores} stores, and as many again"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Nothing can be shared: the input grows while a contender runs."""

    def input(self, contender: Contender, run: str) -> str:
        return f"{run}-input"

    def rows(self, topic: str, tasks: int, records: int) -> Iterator[Row]:
        """So many records of an input, in turn to each partition."""
        rng, now_ms = random.Random(self._seed), int(time.time() * 1000)
        keys = self._keys(tasks)
        for number in range(records):
            partition = number % tasks
            yield topic, partition, rng.choice(keys[partition]), rng.randbytes(VALUE_BYTES), now_ms, None

    def _keys(self, tasks: int) -> list[list[bytes]]:
        return [[b"%d-%08d" % (partition, number) for number in range(KEYS)] for partition in range(tasks)]

    def measure(self, contender: Contender, guarantee: str) -> dict[str, float]:
        self.partitions = contender.tasks
        return super().measure(contender, guarantee)

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        tasks = self.partitions
        self._cluster.create(job.input, tasks, FOREVER, self.create_s)
        self._given = 0
        self._give(job, self._records)
        with self._cluster.committed(job.application_id, job.input) as committed:
            found = self._first(contender, job, committed)
            self._give(job, tasks)
            with self._started(contender, job, "2") as (process, start_s, opening):
                found |= {"start_s": start_s, "opening_s": opening}
                self._give(job, self._records)
                process.wait(lambda: committed() >= self._given, TIMEOUT_S)
                process.kill()
            self._give(job, tasks)
            with self._started(contender, job, "3") as (process, start_s, opening):
                found |= {"killed_start_s": start_s, "killed_opening_s": opening}
                found |= self._rebalance(contender, job, process)
                process.stop()
        return found

    def _give(self, job: Job, records: int) -> None:
        self._cluster.fill(self.rows(job.input, self.partitions, records))
        self._given += records

    def _first(self, contender: Contender, job: Job, committed: Callable[[], int]) -> dict[str, float]:
        """Fill an empty directory, look, and stop."""
        looks: list[Look] = []

        def look() -> bool:
            looks.append(process.look(seen))
            return time.monotonic() > until

        with Measured(contender.command(job), self._log(job, "1")) as process:
            process.wait(lambda: committed() >= self._given, TIMEOUT_S)
            until = time.monotonic() + SETTLE_S
            process.wait(lambda: time.monotonic() > until, TIMEOUT_S)
            until = time.monotonic() + LOOKS_S
            process.wait(look, TIMEOUT_S)
            usage = process.stop()
        return {**typical(looks), "written_mb": usage.written_mb, "peak_rss_mb": usage.peak_rss_mb}

    @contextmanager
    def _started(self, contender: Contender, job: Job, number: str) -> Iterator[tuple[Measured, float, float]]:
        """The process with what it has, once all tasks process: how long that took, and the opening."""
        log, start = self._log(job, number), time.time()
        with Measured(contender.command(job), log) as process:
            process.wait(lambda: len(begun(_text(log))) >= self.partitions, TIMEOUT_S, every_s=0.1)
            yield process, begun(_text(log))[self.partitions - 1] - start, opening_s(_text(log))

    def _rebalance(self, contender: Contender, job: Job, first: Measured) -> dict[str, float]:
        """A second instance comes, and leaves."""
        tasks, moved = self.partitions, self.partitions // 2
        log, second_log = self._log(job, "3"), self._log(job, SECOND)
        told = replace(job, state_dir=f"{job.state_dir}-{SECOND}")
        feed = Paced(self._cluster.bootstrap_servers, job.input, dict(enumerate(self._keys(tasks))), RATE * tasks)
        start, before = time.time(), databases(first.pid)
        with thread(feed, "feed"):
            with Measured(contender.command(told), second_log) as second:
                first.wait(lambda: len(begun(_text(second_log))) >= moved, TIMEOUT_S)
                joined = databases(first.pid)
                second.stop()
            first.wait(lambda: len(begun(_text(log))) >= tasks + moved, TIMEOUT_S)
            until = time.monotonic() + SAID_LATE_S
            first.wait(lambda: time.monotonic() > until, TIMEOUT_S)
            left = databases(first.pid)
        if (taken := len(begun(_text(second_log)))) != moved:
            raise BenchmarkError(f"the second instance has taken {taken} tasks of {tasks}, not half of them")
        return {
            "databases": float(changes(before, joined) + changes(joined, left)),
            "turn_ms": 1000 * longest_look(_text(log), start, time.time()),
        }

    def _log(self, job: Job, end: str) -> Path:
        return self._directory / f"{job.application_id}-{end}.log"


def _text(log: Path) -> str:
    return log.read_text("utf-8", "replace") if log.exists() else ""
