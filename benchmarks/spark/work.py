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
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from benchmarks.contenders import Contender
from benchmarks.count.work import Count
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.process import ROOT
from benchmarks.rows import Figure
from benchmarks.spark import RESULT, STORE

TIMEOUT_S = 3600.0
SHARES = {"transform-by-key": 10, "transform-by-partition": 10}
"""By contender: it gets so many times fewer records."""
OURS = ("milestones-batch", "milestones-micro")
NAMES = (*OURS, "groupby-count", "transform-by-key", "transform-by-partition")


def contenders(names: Iterable[str]) -> list[Contender]:
    """`BenchmarkError` for one that there isn't."""
    found = []
    for name in names:
        if name not in NAMES:
            raise BenchmarkError(f"there is no contender {name!r}, only {', '.join(NAMES)}")
        part = SHARES.get(name, 1)
        command = partial(_command, name)
        found.append(Contender(name, command, part=part, peer=name not in OURS))
    return found


def _command(name: str, job: Job) -> list[str]:
    return [sys.executable, "-m", "benchmarks.spark.app", name, *job.arguments()]


class OnSpark(Count):
    """The work `spark`."""

    name = "spark"
    timeout_s = TIMEOUT_S
    figures = (
        Figure("records_per_s", "records/s"),
        Figure("cpu_s_per_million", "CPU s/million", digits=1),
        Figure("records", "records"),
        Figure("seconds", "seconds", digits=1),
    )

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        found, records = self._process(contender, job), self.records(self.size(contender))
        if found["records"] != records:
            raise BenchmarkError(f"it processed {found['records']:,} of {records:,} records")
        if contender.name.startswith("milestones"):
            self._judge(job, self.size(contender))
        rates = {
            "records_per_s": found["records"] / found["seconds"],
            "cpu_s_per_million": found["cpu_s"] / found["records"] * 1e6,
        }
        return {**found, **rates}

    def _process(self, contender: Contender, job: Job) -> dict[str, float]:
        Path(job.state_dir).mkdir()
        log_file = self._log_file(job)
        with log_file.open("wb") as log:
            try:
                done = subprocess.run(
                    contender.command(job), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                    timeout=self.timeout_s, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired as error:
                raise BenchmarkError(f"not done within {self.timeout_s:.0f} s") from error
        lines = [line for line in done.stdout.decode().splitlines() if line.startswith(RESULT)]
        if done.returncode != 0 or not lines:
            tail = "\n".join(log_file.read_text("utf-8", "replace").splitlines()[-30:])
            raise BenchmarkError(f"it ended with exit code {done.returncode}; its log ends with\n{tail}")
        return {name: float(value) for name, value in json.loads(lines[-1].removeprefix(RESULT)).items()}

    def _judge(self, job: Job, size: float) -> None:
        expected = Counter(key for key, _ in self._data(size))
        outputs, last = self._fold(job.output)
        _, logged = self._fold(f"{job.application_id}-{STORE}-changelog")
        if outputs != self.records(size):
            raise BenchmarkError(f"{outputs:,} outputs for {self.records(size):,} records")
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
