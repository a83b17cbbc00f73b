"""A running count per key on Spark: ours in a batch and in micro-batches, beside what Spark has for it.

Ours keeps its state in RocksDB, logs it, writes an output for each record, and commits all that in transactions. The
others keep their state in RocksDB too, and write nothing. Who is slow gets a part of the records only (`SHARES`).

*Guarantees*: a run counts only when it has processed every record; one of ours, when each key's last output, and the
fold of the changelog, are what a plain count of the input gives, and when there are as many outputs as records.
*Assumes*: contenders run one after the other, each in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.cluster import FOREVER, Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.count.data import Data
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.process import ROOT
from benchmarks.rows import Figure
from benchmarks.spark import RESULT, STORE

PARTITIONS = 4
TIMEOUT_S = 3600.0
SHARES = {"transform-by-key": 10, "transform-by-partition": 10}
"""By contender: it gets so many times fewer records."""
NAMES = ("milestones-batch", "milestones-micro", "groupby-count", "transform-by-key", "transform-by-partition")


def contenders(names: Iterable[str]) -> list[Contender]:
    """`BenchmarkError` for one that there isn't."""
    found = []
    for name in names:
        if name not in NAMES:
            raise BenchmarkError(f"there is no contender {name!r}, only {', '.join(NAMES)}")
        found.append(Contender(name, lambda job, name=name: _command(name, job)))  # type: ignore[misc]
    return found


def _command(name: str, job: Job) -> list[str]:
    return [sys.executable, "-m", "benchmarks.spark.app", name, *job.arguments()]


class OnSpark:
    """The work `spark`."""

    name = "spark"
    figures = (
        Figure("records_per_s", "records/s"),
        Figure("cpu_s_per_million", "CPU s/million", digits=1),
        Figure("records", "records"),
        Figure("seconds", "seconds", digits=1),
    )

    def __init__(self, cluster: Cluster, directory: Path, records: int, keys: int, seed: int) -> None:
        self._cluster, self._directory = cluster, directory
        self._records, self._keys, self._seed = records, keys, seed
        self._runs = 0

    @property
    def title(self) -> str:
        return f"{self._records:,} records, {self._keys:,} keys"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Write the inputs: one topic for those with equally many records."""
        for share in sorted({SHARES.get(contender.name, 1) for contender in contenders}):
            self._cluster.create(self._input(share), PARTITIONS, FOREVER)
            self._cluster.fill(self._rows(share))

    def measure(self, contender: Contender, guarantee: str) -> dict[str, float]:
        """One run, everything fresh; its figures by name."""
        self._runs += 1
        share = SHARES.get(contender.name, 1)
        job = Job(
            bootstrap_servers=self._cluster.bootstrap_servers,
            application_id=f"spark-{self._runs}",
            guarantee=guarantee,
            input=self._input(share),
            output=f"spark-{self._runs}-output",
            state_dir=str(self._directory / f"spark-{self._runs}"),
        )
        self._cluster.create(job.output, PARTITIONS, FOREVER)
        try:
            found = self._run(contender, job)
            expected = self._records // share
            if found["records"] != expected:
                raise BenchmarkError(f"it processed {found['records']:,} of {expected:,} records")
            if contender.name.startswith("milestones"):
                self._judge(job, share)
        except BenchmarkError as error:
            raise BenchmarkError(f"{contender.name}, {guarantee}: {error}") from error
        finally:
            self._cluster.delete(f"{job.application_id}-")
        rates = {
            "records_per_s": found["records"] / found["seconds"],
            "cpu_s_per_million": found["cpu_s"] / found["records"] * 1e6,
        }
        return {**found, **rates}

    def _run(self, contender: Contender, job: Job) -> dict[str, float]:
        Path(job.state_dir).mkdir()
        log_file = self._directory / f"{job.application_id}.log"
        with log_file.open("wb") as log:
            done = subprocess.run(
                contender.command(job), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        lines = [line for line in done.stdout.decode().splitlines() if line.startswith(RESULT)]
        if done.returncode != 0 or not lines:
            tail = "\n".join(log_file.read_text("utf-8", "replace").splitlines()[-30:])
            raise BenchmarkError(f"it ended with exit code {done.returncode}; its log ends with\n{tail}")
        return {name: float(value) for name, value in json.loads(lines[-1].removeprefix(RESULT)).items()}

    def _judge(self, job: Job, share: int) -> None:
        expected = Counter(key for key, _ in self._data(share))
        outputs, last = self._fold(job.output)
        _, logged = self._fold(f"{job.application_id}-{STORE}-changelog")
        if outputs != self._records // share:
            raise BenchmarkError(f"{outputs:,} outputs for {self._records // share:,} records")
        for where, counts in (("outputs", last), ("changelog", logged)):
            if counts != expected:
                raise BenchmarkError(f"the {where} are wrong: {len(counts):,} keys, {len(expected):,} expected")

    def _fold(self, topic: str) -> tuple[int, dict[bytes, int]]:
        """How many records a topic has, and each key's last count."""
        records, last = 0, {}
        for message in self._cluster.read(topic):
            records += 1
            last[message.key() or b""] = int.from_bytes(message.value() or b"")
        return records, last

    def _data(self, share: int) -> Data:
        return Data(self._records // share, self._keys, self._seed)

    def _input(self, share: int) -> str:
        return f"sales-by-{share}"

    def _rows(self, share: int) -> Iterator[Row]:
        now_ms = 1_700_000_000_000
        for number, (key, value) in enumerate(self._data(share).values()):
            yield self._input(share), -1, key, value, now_ms + number // 1000, None
