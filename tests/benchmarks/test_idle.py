"""The benchmark `idle`: its tasks, and when a broker knows a topic."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.cluster import leading
from benchmarks.idle.app import topology
from benchmarks.idle.work import Idle
from benchmarks.job import Job
from benchmarks.process import Sample, Usage


def test_some_of_the_tasks_have_a_store() -> None:
    job = Job("localhost:1", "idle", "exactly_once_v2", "input", "output", "state")
    subs = {next(iter(sub.source_topics)): len(sub.stores) for sub in topology(job).resolve("idle")}
    assert subs == {"input-plain": 0, "input-stateful": 1}
    work = Idle(None, Path(), tasks=512, seconds=20, seed=1)  # type: ignore[arg-type]
    assert work.title == "512 tasks, 64 of them with a store, no input, 20 s"


def test_a_topic_is_known_by_the_leaders_of_its_partitions() -> None:
    topic = SimpleNamespace(partitions={number: SimpleNamespace(leader=number - 1) for number in range(3)})
    assert (leading(None), leading(topic)) == ([], [1, 2])


def test_what_was_used_before_it_was_settled_does_not_count() -> None:
    usage = Usage([Sample(0.0, 5.0, 50.0), Sample(10.0, 6.0, 70.0), Sample(30.0, 8.0, 60.0)], total_cpu_s=9.0)
    work = Idle(None, Path(), tasks=512, seconds=20, seed=1)  # type: ignore[arg-type]
    assert work._figures(usage, 10.0) == {"cpu_s_per_s": pytest.approx(0.1), "rss_mb": 70.0}
