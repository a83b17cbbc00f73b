"""Works of which each run is a fresh process, and those whose input lies ready.

*Guarantees*: runs share nothing but the input, of which there is one topic for those with equally many records.
*Assumes*: no retries by failure: the broker stays up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.cluster import CALL_S, FOREVER, Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.process import Measured, Usage, together, wait
from benchmarks.rows import Figure

TIMEOUT_S = 600.0
LEAST_SHARE = 0.25
"""Of the work of another instance."""
STAMPED = {**FOREVER, "message.timestamp.type": "LogAppendTime"}


class Fresh(ABC):
    """What a subclass adds: its `name`, `title` and `figures`, `partitions` and `settings` of the output, `prepare`,
    `input`, and `run`."""

    name = ""
    figures: Sequence[Figure] = ()
    partitions = 4
    settings: Mapping[str, str] = FOREVER
    create_s = CALL_S
    timeout_s = TIMEOUT_S
    asked: Mapping[str, str] = {}
    """Fields of the job that are this work's own."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster, self._directory = cluster, directory
        self._runs = 0

    @property
    @abstractmethod
    def title(self) -> str:
        """What is measured, for people."""

    @abstractmethod
    def prepare(self, contenders: Iterable[Contender]) -> None:
        """What all runs share."""

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
            workers=str(contender.workers),
            **{"threads": str(contender.threads), "partitions": str(self.partitions), **self.asked},
        )
        self._cluster.create(job.output, self.partitions, self.settings, self.create_s)
        try:
            return self.run(contender, job)
        except BenchmarkError as error:
            raise BenchmarkError(f"{contender.name}, {guarantee}: {error}") from error
        finally:
            self._cluster.delete(*_prefixes(contender, run))

    def _produced(self, contender: Contender, job: Job, records: int) -> dict[str, float]:
        """What a run has written into outputs and changelogs, in bytes of their logs."""
        written = self._cluster.bytes_of(*_prefixes(contender, job.application_id))
        return {"bytes_produced": float(written), "bytes_per_record": written / records}

    def _log_file(self, job: Job) -> Path:
        return self._directory / f"{Path(job.state_dir).name}.log"


def _instances(job: Job, count: int) -> list[Job]:
    """The job of each instance: all have one application, and each a directory of its own."""
    return [job, *(replace(job, state_dir=f"{job.state_dir}-{number}") for number in range(2, count + 1))]


def must_share(usages: Sequence[Usage]) -> None:
    """`BenchmarkError` when one of several instances had next to no work in the second half of the time."""
    begin, end = usages[0].samples[0].at, usages[0].samples[-1].at
    shares = [usage.cpu_s_between((begin + end) / 2, end) for usage in usages]
    if min(shares) < LEAST_SHARE * max(shares):
        used = ", ".join(f"{share:.1f}" for share in shares)
        raise BenchmarkError(
            f"the instances used {used} CPU s in the second half: one had next to no work; give more records"
        )


def _prefixes(contender: Contender, run: str) -> list[str]:
    """How the names of the run's own topics begin."""
    return [prefix.format(run=run) for prefix in contender.prefixes]


class Fed(Fresh):
    """From a process's start until all of the input is committed. A subclass adds `records`, `rows` and `judge`."""

    settings = STAMPED

    @abstractmethod
    def records(self, size: float) -> int:
        """Of the input of contenders of this size."""

    @abstractmethod
    def rows(self, size: float, topic: str) -> Iterator[Row]:
        """That input."""

    @abstractmethod
    def judge(self, contender: Contender, job: Job, usage: Usage) -> dict[str, float]:
        """The figures of a run. `BenchmarkError` when it doesn't count."""

    def topics(self, size: float, topic: str) -> Mapping[str, int]:
        """The topics of that input, and how many records each has; `topic` is the job's."""
        return {topic: self.records(size)}

    def outputs(self, size: float) -> int:
        """How many records a contender of this size puts out, if it leaves none out."""
        return self.records(size)

    def size(self, contender: Contender) -> float:
        """It is given so many times the records."""
        return contender.times / contender.part

    def input(self, contender: Contender, run: str) -> str:
        return f"{self.name}-input-{self.size(contender):g}"

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
            if not contender.commits:
                due = [(stack.enter_context(self._cluster.written(job.output)), self.outputs(size))]
            processes = [
                stack.enter_context(Measured(contender.command(one), self._log_file(one), contender.workers))
                for one in _instances(job, contender.instances)
            ]
            wait(processes, lambda: all(done() >= records for done, records in due), self.timeout_s)
            for process in processes:  # all at once, so that none takes over what another leaves
                process.terminate()
            usages = [process.ended() for process in processes]
        must_share(usages)
        return self.judge(contender, job, together(usages))
