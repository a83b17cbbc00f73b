"""The work `restore`: what it makes of changelogs that stages have written. No broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.restore.work import Restore
from benchmarks.restore.written import Log, Written, restored
from milestones.common.errors import ConfigError

JOB = Job("b:1", "restore-1", "exactly_once_v2", "in", "out", "state")


def message(partition: int, offset: int, key: bytes, count: int) -> Any:
    class Found:
        def partition(self) -> int:
            return partition

        def offset(self) -> int:
            return offset

        def key(self) -> bytes:
            return key

        def value(self) -> bytes:
            return count.to_bytes(8)

        def timestamp(self) -> tuple[int, int]:
            return 1, 77

    return Found()


FULL = [message(0, 0, b"a", 1), message(0, 1, b"a", 2), message(1, 0, b"b", 1), message(0, 3, b"a", 3)]
"""In partition 0 the offset 2 is the end of a commit."""
THIN = [message(0, 0, b"a", 2), message(1, 0, b"b", 1), message(0, 2, b"a", 3)]


def test_a_log_has_so_many_records_per_key_and_commit_that_changed_it() -> None:
    full, thin = Log.of(FULL), Log.of(THIN)
    assert (full.records, full.changed, full.per_key_and_commit) == (4, 3, pytest.approx(4 / 3))
    assert (thin.records, thin.changed, thin.per_key_and_commit) == (3, 3, 1)
    assert full.last == thin.last == {b"a": 3, b"b": 1}


class FakeCluster:
    """Has two logs; keeps what is written."""

    bootstrap_servers = "b:1"

    def __init__(self) -> None:
        self.filled = list[Any]()

    def create(self, *_: Any) -> None: ...

    def fill(self, rows: Iterator[Any]) -> None:
        self.filled = list(rows)

    def read(self, topic: str) -> list[Message]:
        return FULL if topic.startswith("restore-written-0-") else THIN


class OfLogs(Written):
    """A work whose logs are there, and whose contenders need a millisecond for each record."""

    def _write(self, stage: str) -> Log:
        return Log.of(self._cluster.read(f"{self._job(stage).application_id}-"))

    def _restored(self, contender: Contender, job: Job, log: Any, records: int) -> dict[str, float]:
        self._cluster.fill(log)
        return {"took_ms": float(records)}


def made(cluster: FakeCluster, updates: dict[bytes, int]) -> OfLogs:
    work = OfLogs(cluster, Path(), 4, 1, ["m4", "m5"], 2, 1_000)  # type: ignore[arg-type]
    work.updates = lambda topic: (  # type: ignore[method-assign]
        (topic, -1, key, b"", 0, None) for key, count in updates.items() for _ in range(count)
    )
    return work


def test_each_log_is_restored_record_by_record_and_compared_with_the_first() -> None:
    cluster = FakeCluster()
    work = made(cluster, {b"a": 3, b"b": 1})
    work.prepare([])
    found = work.run(Contender("one", lambda job: job.arguments()), JOB)
    assert found == {
        "m4_records": 4, "m4_per_key_and_commit": pytest.approx(4 / 3), "m4_took_ms": 4,
        "m5_records": 3, "m5_per_key_and_commit": 1, "m5_took_ms": 3, "times_as_fast": pytest.approx(4 / 3),
    }  # fmt: skip
    assert {figure.name for figure in work.figures} == found.keys()
    topic = "restore-1-1-totals-changelog"
    assert cluster.filled == [
        (topic, 0, b"a", (2).to_bytes(8), 77, None), (topic, 1, b"b", (1).to_bytes(8), 77, None),
        (topic, 0, b"a", (3).to_bytes(8), 77, None),
    ]  # fmt: skip


def test_a_log_that_is_not_what_the_updates_give_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="the changelog that m4 has written isn't what the updates give"):
        made(FakeCluster(), {b"a": 4, b"b": 1}).prepare([])


def test_a_stage_that_this_version_has_not_is_refused_before_any_writes() -> None:
    with pytest.raises(ConfigError, match="m99"):
        Written(None, Path(), 500, 1, ["m4", "m99"], 7, 1_000)  # type: ignore[arg-type]


def test_updates_are_of_so_many_keys_by_seed() -> None:
    work = Written(None, Path(), 500, 1, ["m4"], 7, 1_000)  # type: ignore[arg-type]
    rows = [row[:4] for row in work.updates("in")]
    assert rows == [row[:4] for row in work.updates("in")]
    assert len(rows) == 500
    assert len(Counter(key for _, _, key, _ in rows)) == 7


def test_it_restores_a_log_of_its_own_unless_stages_have_written_one() -> None:
    assert type(restored(None, Path(), 500, 1, [], 7, 1_000)) is Restore  # type: ignore[arg-type]
    assert type(restored(None, Path(), 500, 1, ["m4"], 7, 1_000)) is Written  # type: ignore[arg-type]
