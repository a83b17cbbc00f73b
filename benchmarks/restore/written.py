"""Restore the changelogs that stages have written for the same updates: full ones, and thin ones.

Each of `--written-by` counts `--records` updates of `--keys` keys, exactly once, with a commit each `--commit` ms. In a
run each of these logs, copied record by record, is restored by the contender, one after the other.

| figure | what |
|---|---|
| STAGE: records | in the changelog that the stage has written |
| per key and commit | these, by the number of keys that each commit changed, of all commits |
| restored in ms | from the first partition's start to the last one's end, as the contender's own listener tells |
| times as fast | the first stage's log, by the last one's |

*Guarantees*: a log is restored only if its last record of each key is what the updates give; a run counts only when all
records were restored.
*Assumes*: no transaction is aborted: each offset without a record is the end of a commit.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Message

from benchmarks.cluster import COMPACTED, FOREVER, Cluster, Row
from benchmarks.contenders import Contender, ours
from benchmarks.errors import BenchmarkError
from benchmarks.fed import TIMEOUT_S
from benchmarks.job import EXACTLY_ONCE, Job
from benchmarks.process import Measured
from benchmarks.restore.work import Restore, changelog_of
from benchmarks.rows import Figure, Work

UPDATES = "restore-updates"
VALUE = b"x" * 100


@dataclass(frozen=True)
class Log:
    """What a stage has written: how many records, how many keys its commits changed, each commit's added up, and the
    last value of each key."""

    records: int
    changed: int
    last: dict[bytes, int]

    @property
    def per_key_and_commit(self) -> float:
        return self.records / self.changed

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Log:
        """Of a changelog's records, those of each partition in order."""
        records = changed = 0
        last: dict[bytes, int] = {}
        offsets: dict[int, int] = {}
        keys: dict[int, set[bytes]] = {}
        for message in messages:
            partition, offset, key = message.partition() or 0, message.offset() or 0, message.key() or b""
            if offsets.get(partition, offset) != offset:
                keys[partition] = set()
            of_commit = keys.setdefault(partition, set())
            changed += key not in of_commit
            of_commit.add(key)
            records += 1
            last[key] = int.from_bytes(message.value() or b"")
            offsets[partition] = offset + 1
        return cls(records, changed, last)


class Written(Restore):
    """Restore the changelogs that stages have written."""

    def __init__(
        self, cluster: Cluster, directory: Path, records: int, seed: int, written_by: Sequence[str], keys: int,
        commit_interval_ms: int,
    ) -> None:  # fmt: skip
        super().__init__(cluster, directory, records, seed)
        self._keys, self._interval_ms = keys, commit_interval_ms
        self._writers = {stage: ours(stage, self.name) for stage in written_by}
        self._logs: dict[str, Log] = {}
        self.figures = (
            *(figure for stage in written_by for figure in figures_of(stage)),
            Figure("times_as_fast", "times as fast", digits=1),
        )

    @property
    def title(self) -> str:
        return f"{self._records:,} updates of {self._keys:,} keys, a commit every {self._interval_ms} ms"

    def prepare(self, contenders: Iterable[Contender]) -> None:
        """Have the stages write. `BenchmarkError` when a log isn't what the updates give."""
        self._cluster.create(UPDATES, self.partitions, FOREVER)
        self._cluster.fill(self.updates(UPDATES))
        due = Counter(key for _, _, key, *_ in self.updates(UPDATES))
        for stage in self._writers:
            self._logs[stage] = self._write(stage)
            if self._logs[stage].last != due:
                raise BenchmarkError(f"the changelog that {stage} has written isn't what the updates give")

    def updates(self, topic: str) -> Iterator[Row]:
        """The input of what writes."""
        rng, now_ms = random.Random(self._seed), int(time.time() * 1000)
        for _ in range(self._records):
            yield topic, -1, b"key-%012d" % rng.randrange(self._keys), VALUE, now_ms, None

    def _number(self, stage: str) -> int:
        """Names of flags that are joined by + are no name of a topic."""
        return list(self._writers).index(stage)

    def _job(self, stage: str) -> Job:
        """What writes the log of this stage."""
        written = f"restore-written-{self._number(stage)}"
        return Job(
            self._cluster.bootstrap_servers, written, EXACTLY_ONCE, UPDATES, f"{written}-output",
            str(self._directory / written), str(self._interval_ms),
        )  # fmt: skip

    def _write(self, stage: str) -> Log:
        job = self._job(stage)
        self._cluster.create(job.output, self.partitions, FOREVER)
        self._cluster.create(changelog_of(job), self.partitions, COMPACTED)
        with (
            self._cluster.committed(job.application_id, UPDATES) as committed,
            Measured(self._writers[stage].command(job), self._log_file(job)) as process,
        ):
            process.wait(lambda: committed() >= self._records, TIMEOUT_S)
            process.stop()
        return Log.of(self._cluster.read(changelog_of(job)))

    def _copied(self, stage: str, topic: str) -> Iterator[Row]:
        for message in self._cluster.read(changelog_of(self._job(stage))):
            yield topic, message.partition() or 0, message.key(), message.value(), message.timestamp()[1], None

    def run(self, contender: Contender, job: Job) -> dict[str, float]:
        """Each log on an empty disk."""
        found: dict[str, float] = {}
        for stage in self._writers:
            one = f"{job.application_id}-{self._number(stage)}"
            told = replace(job, application_id=one, input=f"{one}-input", state_dir=str(self._directory / one))
            log = self._logs[stage]
            restored = self._restored(contender, told, self._copied(stage, changelog_of(told)), log.records)
            found |= {
                f"{stage}_records": float(log.records),
                f"{stage}_per_key_and_commit": log.per_key_and_commit,
                f"{stage}_took_ms": restored["took_ms"],
            }
        took_ms = [found[f"{stage}_took_ms"] for stage in self._writers]
        return {**found, "times_as_fast": took_ms[0] / max(took_ms[-1], 1.0)}


def figures_of(stage: str) -> Iterator[Figure]:
    """Those of the log that this stage has written."""
    yield Figure(f"{stage}_records", f"{stage}: records")
    yield Figure(f"{stage}_per_key_and_commit", "per key and commit", digits=2)
    yield Figure(f"{stage}_took_ms", "restored in ms")


def restored(
    cluster: Cluster, directory: Path, records: int, seed: int, written_by: Sequence[str], keys: int,
    commit_interval_ms: int,
) -> Work:  # fmt: skip
    """Restore a store from its changelog: of as many keys as records, or what stages have written."""
    if written_by:
        return Written(cluster, directory, records, seed, written_by, keys, commit_interval_ms)
    return Restore(cluster, directory, records, seed)
