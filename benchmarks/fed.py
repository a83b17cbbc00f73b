"""Works of which each run is a fresh process, and those whose input lies ready.

*Guarantees*: runs share nothing but the input, of which there is one topic for those with equally many records.
*Assumes*: no retries by failure: the broker stays up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.cluster import CALL_S, FOREVER, Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.process import Measured, Usage

TIMEOUT_S = 600.0
STAMPED = {**FOREVER, "message.timestamp.type": "LogAppendTime"}


class Fresh(ABC):
    """What a subclass adds: its `name`, `partitions` and `settings` of the output, `input`, and `run`."""

    name = ""
    partitions = 4
    settings: Mapping[str, str] = FOREVER
    create_s = CALL_S
    asked: Mapping[str, str] = {}
    """Fields of the job that are this work's own."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster, self._directory = cluster, directory
        self._runs = 0

    @abstractmethod
    def input(self, contender: Contender, run: str) -> str:
        """The name of its input in the run of that name."""

    @abstractmethod
    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        """The figures of a run, by name. `BenchmarkError` when it doesn't count."""

    def measure(self, contender: Contender, guarantee: str) -> dict[str, float]:
        """One run, everything fresh; its figures by name."""
        self._runs += 1
        run = f"{self.name}-{self._runs}"
        job = Job(
            bootstrap_servers=self._cluster.bootstrap_servers,
            application_id=run,
            guarantee=guarantee,
            input=self.input(contender, run),
            output=f"{run}-output",
            state_dir=str(self._directory / run),
            **{"threads": str(contender.threads), **self.asked},
        )
        self._cluster.create(job.output, self.partitions, self.settings, self.create_s)
        try:
            return self.run(contender, job)
        except BenchmarkError as error:
            raise BenchmarkError(f"{contender.name}, {guarantee}: {error}") from error
        finally:
            self._cluster.delete(f"{run}-")

    def _produced(self, job: Job, records: int) -> dict[str, float]:
        """What a run has written into outputs and changelogs, in bytes of their logs."""
        written = self._cluster.bytes_of(f"{job.application_id}-")
        return {"bytes_produced": float(written), "bytes_per_record": written / records}

    def _log_file(self, job: Job) -> Path:
        return self._directory / f"{job.application_id}.log"


class Fed(Fresh):
    """From a process's start until all of the input is committed. A subclass adds `records`, `rows` and `judge`."""

    settings = STAMPED

    @abstractmethod
    def records(self, size: int) -> int:
        """Of the input of contenders of this size."""

    @abstractmethod
    def rows(self, size: int, topic: str) -> Iterator[Row]:
        """That input."""

    @abstractmethod
    def judge(self, contender: Contender, job: Job, usage: Usage) -> dict[str, float]:
        """The figures of a run. `BenchmarkError` when it doesn't count."""

    def topics(self, size: int, topic: str) -> Mapping[str, int]:
        """The topics of that input, and how many records each has; `topic` is the job's."""
        return {topic: self.records(size)}

    def size(self, contender: Contender) -> int:
        """It is given so many times the records."""
        return contender.times

    def input(self, contender: Contender, run: str) -> str:
        return f"input-{self.size(contender)}"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Write the inputs that they need."""
        for size, topic in sorted({(self.size(one), self.input(one, "")) for one in contenders}):
            for name in self.topics(size, topic):
                self._cluster.create(name, self.partitions, FOREVER)
            self._cluster.fill(self.rows(size, topic))

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        size = self.size(contender)
        with ExitStack() as stack:
            due = [
                (stack.enter_context(self._cluster.committed(job.application_id, topic)), records)
                for topic, records in self.topics(size, job.input).items()
            ]
            process = stack.enter_context(Measured(contender.command(job), self._log_file(job)))
            process.wait(lambda: all(committed() >= records for committed, records in due), TIMEOUT_S)
            usage = process.stop()
        return self.judge(contender, job, usage)
