"""A work whose input lies ready: each run is a fresh process, from its start until all of the input is committed.

*Guarantees*: runs share nothing but the input, of which there is one topic for those with equally many records.
*Assumes*: no retries by failure: the broker stays up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.cluster import FOREVER, Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.process import Measured, Usage

TIMEOUT_S = 600.0
STAMPED = {**FOREVER, "message.timestamp.type": "LogAppendTime"}


class Fed(ABC):
    """What a subclass adds: its `name`, `partitions` of input and output, `records`, `rows`, and `judge`."""

    name = ""
    partitions = 4
    asked: Mapping[str, str] = {}
    """Fields of the job that are this work's own."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster, self._directory = cluster, directory
        self._runs = 0

    @abstractmethod
    def records(self, times: int) -> int:
        """Of the input of contenders that are given so many times the records."""

    @abstractmethod
    def rows(self, times: int, topic: str) -> Iterator[Row]:
        """That input."""

    @abstractmethod
    def judge(self, job: Job, times: int, usage: Usage) -> dict[str, float]:
        """The figures of a run. `BenchmarkError` when it doesn't count."""

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Write the inputs that they need."""
        for times in sorted({contender.times for contender in contenders}):
            self._cluster.create(self._input(times), self.partitions, FOREVER)
            self._cluster.fill(self.rows(times, self._input(times)))

    def measure(self, contender: Contender, guarantee: str) -> dict[str, float]:
        """One run, everything fresh; its figures by name."""
        self._runs += 1
        run = f"{self.name}-{self._runs}"
        job = Job(
            bootstrap_servers=self._cluster.bootstrap_servers,
            application_id=run,
            guarantee=guarantee,
            input=self._input(contender.times),
            output=f"{run}-output",
            state_dir=str(self._directory / run),
            **self.asked,
        )
        self._cluster.create(job.output, self.partitions, STAMPED)
        try:
            usage = self._run(contender, job)
            return self.judge(job, contender.times, usage)
        except BenchmarkError as error:
            raise BenchmarkError(f"{contender.name}, {guarantee}: {error}") from error
        finally:
            self._cluster.delete(f"{job.application_id}-")

    def _run(self, contender: Contender, job: Job) -> Usage:
        records, log_file = self.records(contender.times), self._directory / f"{job.application_id}.log"
        with (
            self._cluster.committed(job.application_id, job.input) as committed,
            Measured(contender.command(job), log_file) as process,
        ):
            process.wait(lambda: committed() >= records, TIMEOUT_S)
            return process.stop()

    def _input(self, times: int) -> str:
        return f"input-{times}"
