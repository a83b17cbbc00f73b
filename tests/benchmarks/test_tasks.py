"""The benchmark `tasks`: its inputs, and what it reads out of a log."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import looks
from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.tasks import app
from benchmarks.tasks.work import COMMITTED, Phases, Tasks, loops, topics_of
from milestones.stream_thread.commits.timed_commit import TimedCommit

LOG = """\
99.000 INFO benchmarks.tasks: looks at the group at most 0.9000 s apart, 0.0700 s of it outside Kafka's calls
101.000 INFO benchmarks.tasks: looks at the group at most 0.1000 s apart, 0.0200 s of it outside Kafka's calls
101.200 INFO benchmarks.tasks: a commit took 0.0100 s
101.300 INFO benchmarks.tasks: a commit took 0.0300 s
102.000 INFO benchmarks.tasks: a commit took 0.0200 s
112.000 INFO benchmarks.tasks: looks at the group at most 0.1100 s apart, 0.0015 s of it outside Kafka's calls
113.000 INFO benchmarks.tasks: looks at the group at most 2.0000 s apart, 1.0000 s of it outside Kafka's calls
114.000 INFO benchmarks.tasks: a commit took 9.0000 s
"""
AT = Phases(first=100.0, last=105.0, idle=110.0, ended=112.5)


def test_a_log_says_how_long_a_loop_let_its_group_wait_and_how_long_commits_took() -> None:
    found = loops(LOG, AT)
    assert {name: pytest.approx(value) for name, value in found.items()} == {
        "busy_ms": 70, "idle_ms": 1.5, "gap_ms": 900, "commit_ms": 20, "longest_commit_ms": 30,
    }  # fmt: skip
    with pytest.raises(BenchmarkError, match="no commit"):
        loops(LOG.replace("commit", "pause"), AT)


def test_each_task_has_equally_many_records_of_the_backlog() -> None:
    assert topics_of(64) == {"input-64-plain": 56, "input-64-stateful": 8}
    assert topics_of(2) == {"input-2-plain": 1, "input-2-stateful": 1}
    work = Tasks(None, Path(), records=1_000, seconds=2, seed=1)  # type: ignore[arg-type]
    rows = Counter((topic, partition) for topic, partition, *_ in work.backlog(64))
    assert len(rows) == 64
    assert set(rows.values()) == {1_000 // 64}
    one = Contender("one", lambda job: job.arguments(), tasks=64)
    assert work.input(one, "run") == "input-64"


class Clock:
    """A clock that is set."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def clients() -> Any:
    return SimpleNamespace(**{name: SimpleNamespace(blocked_ns=0) for name in ("consumer", "producer", "member")})


def test_looks_are_told_once_a_second_with_what_kafka_took_of_the_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, of = Clock(), clients()
    monkeypatch.setattr(looks, "time", clock)
    seen = looks.Looks(of)
    with caplog.at_level(logging.INFO):
        clock.now, of.consumer.blocked_ns = 0.30, 290_000_000
        seen.look()
        clock.now = 0.35
        seen.look()
        assert not caplog.messages
        clock.now, of.producer.blocked_ns = 1.25, 895_000_000
        seen.look()
    (line,) = caplog.messages
    assert looks.LOOKED.findall(f"1.000 INFO x: {line}") == [("1.000", "0.9000", "0.0500")]


def test_a_clients_successor_that_begins_at_zero_hides_no_gap(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, of = Clock(), clients()
    of.producer.blocked_ns = 5_000_000_000
    monkeypatch.setattr(looks, "time", clock)
    seen = looks.Looks(of)
    clock.now, of.producer.blocked_ns = 1.5, 0
    with caplog.at_level(logging.INFO):
        seen.look()
    assert "1.5000 s apart, 1.5000 s of it" in caplog.text


def test_each_commit_that_succeeded_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def run_once(commit: Any, wait_ms: int) -> dict[Any, Any] | None:
        commit.elapsed_ns += 20_000_000
        return {} if wait_ms else None

    monkeypatch.setattr(TimedCommit, "run_once", run_once)
    app.watch_commits()
    commit = SimpleNamespace(elapsed_ns=7)
    with caplog.at_level(logging.INFO):
        assert TimedCommit.run_once(commit, 0) is None  # type: ignore[arg-type]
        assert TimedCommit.run_once(commit, 1) == {}  # type: ignore[arg-type]
    assert [COMMITTED.findall(f"1.000 INFO x: {line}") for line in caplog.messages] == [[("1.000", "0.0200")]]
