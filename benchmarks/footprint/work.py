"""What one instance with so many threads costs its machine and its broker: connections, native threads, memory.

The program is that of `latency`. Each task has a store of `--records` keys together, which is restored first; then as
many records of input are processed that lie ready, and every partition gets ten a second, while the process is looked
at for `--seconds`. So each client that the instance has is at work, and its queues were full.

| figure | what |
|---|---|
| connections | open TCP connections of the process to the one broker; then by what they are for |
| threads | native threads of the process |
| not processing | those of them that call no user code |
| RSS, PSS | resident memory, without and with shared pages split among the processes that have them; medians |
| peak RSS | the highest of samples every 50 ms, of the whole run |

A connection's role is in its requests: the client id says whose it is, and a consumer's connection that carries
JoinGroup or Heartbeat is the member's. The numbers are those of the look that saw most connections.

*Guarantees*: only looks count in which the process has as many connections as the proxy in front of the broker.
*Assumes*: one broker: a role with two connections has two for each. Linux, for PSS and the native threads.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cluster import COMPACTED, FOREVER, Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.fed import TIMEOUT_S, Fresh
from benchmarks.footprint.looks import Look, figures, seen
from benchmarks.job import Job
from benchmarks.last import STORE
from benchmarks.moves.traffic import thread
from benchmarks.paced import Paced, keys_of
from benchmarks.process import Measured
from benchmarks.rows import Figure

RATE = 10.0
VALUE_BYTES = 100
SETTLE_S = 3.0
"""From when the input that lay ready is committed: by then each client has found its coordinator."""


class Footprint(Fresh):
    """Connections, native threads and memory of one instance."""

    name = "footprint"
    figures: Sequence[Figure] = (
        Figure("connections", "connections"),
        Figure("consumer", "consumer"),
        Figure("membership", "membership"),
        Figure("restore", "restore"),
        Figure("producer", "producer"),
        Figure("admin", "admin"),
        Figure("threads", "threads"),
        Figure("other_threads", "not processing"),
        Figure("rss_mb", "RSS MB"),
        Figure("pss_mb", "PSS MB"),
        Figure("peak_rss_mb", "peak RSS MB"),
    )

    def __init__(self, cluster: Cluster, directory: Path, tasks: int, records: int, seconds: int, seed: int) -> None:
        super().__init__(cluster, directory)
        self.partitions = tasks
        self._records, self._seconds, self._seed = records, seconds, seed
        self._keys = keys_of(tasks)

    @property
    def title(self) -> str:
        return f"{self.partitions} tasks, {self._records:,} records of state, and of input"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Nothing can be shared: each run has a changelog of its own. `BenchmarkError` for a thread without a task."""
        if idle := [one.name for one in contenders if one.threads > self.partitions]:
            raise BenchmarkError(f"{idle[0]} has more threads than there are tasks: give it more of these (--tasks)")

    def input(self, contender: Contender, run: str) -> str:
        return f"{run}-input"

    def state(self, topic: str) -> Iterator[Row]:
        """A changelog."""
        rng, now_ms = random.Random(self._seed), int(time.time() * 1000)
        for number in range(self._records):
            yield topic, number % self.partitions, b"%012d" % number, rng.randbytes(VALUE_BYTES), now_ms, None

    def backlog(self, topic: str) -> Iterator[Row]:
        """What lies in the input."""
        for number, (_, partition, _, value, now_ms, _) in enumerate(self.state(topic)):
            keys = self._keys[partition]
            yield topic, partition, keys[number // self.partitions % len(keys)], value, now_ms, None

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        changelog, proxy = f"{job.application_id}-{STORE}-changelog", self._cluster.proxy
        self._cluster.create(job.input, self.partitions, FOREVER)
        self._cluster.create(changelog, self.partitions, COMPACTED)
        self._cluster.fill(self.state(changelog))
        self._cluster.fill(self.backlog(job.input))
        servers = self._cluster.bootstrap_servers
        feed = Paced(servers, job.input, dict(enumerate(self._keys)), RATE * self.partitions)
        told = replace(job, bootstrap_servers=proxy.bootstrap_servers)
        looks: list[Look] = []

        def look() -> bool:
            looks.append(process.look(lambda at: seen(at, proxy.connections(), proxy.port)))
            return time.monotonic() > until

        with (
            self._cluster.positions(job.application_id, job.input) as committed,
            Measured(contender.command(told), self._log_file(job)) as process,
            thread(feed, "feed"),
        ):
            process.wait(lambda: sum(committed().values()) >= self._records, TIMEOUT_S)
            until = time.monotonic() + SETTLE_S
            process.wait(lambda: time.monotonic() > until, TIMEOUT_S)
            until = time.monotonic() + self._seconds
            process.wait(look, TIMEOUT_S)
            usage = process.stop()
        return {**figures(looks, contender.threads), "peak_rss_mb": usage.peak_rss_mb}
