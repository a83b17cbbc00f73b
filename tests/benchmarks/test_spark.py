"""The benchmark on Spark: who takes part, and what isn't counted. No Spark, no broker."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.contenders import Contender
from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.spark import RESULT
from benchmarks.spark.work import NAMES, SHARES, OnSpark, contenders

JOB = Job("b:1", "app", "exactly_once_v2", "in", "out", "state")


def test_every_contender_is_started_with_the_whole_job() -> None:
    made = contenders(NAMES)
    assert [one.name for one in made] == list(NAMES)
    for one in made:
        assert list(one.command(JOB)) == [sys.executable, "-m", "benchmarks.spark.app", one.name, *JOB.arguments()]


def test_an_unknown_contender_is_named() -> None:
    with pytest.raises(BenchmarkError, match=r"'flink', only milestones-batch"):
        contenders(["flink"])


def test_who_gets_fewer_records_is_a_contender() -> None:
    assert SHARES.keys() <= set(NAMES)


class FakeCluster:
    bootstrap_servers = "b:1"

    def create(self, *_: Any) -> None: ...

    def delete(self, prefix: str) -> None: ...


def saying(text: str, code: int = 0) -> Contender:
    program = f"import sys; sys.stdout.write({text!r}); sys.exit({code})"
    return Contender("groupby-count", lambda job: [sys.executable, "-c", program])


def work(directory: Path) -> OnSpark:
    return OnSpark(FakeCluster(), directory, 1_000, 10, 1)  # type: ignore[arg-type]


def result(**figures: float) -> str:
    return f"noise\n{RESULT}{json.dumps(figures)}\n"


def test_rates_are_of_what_the_contender_says(tmp_path: Path) -> None:
    figures = work(tmp_path).measure(saying(result(records=1_000, seconds=4, cpu_s=2)), "exactly_once_v2")
    assert (figures["records_per_s"], figures["cpu_s_per_million"]) == (250, 2_000)


def test_a_run_that_processed_too_little_isnt_counted(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="999"):
        work(tmp_path).measure(saying(result(records=999, seconds=1, cpu_s=1)), "exactly_once_v2")


@pytest.mark.parametrize(("text", "code"), [("", 0), (result(records=1_000, seconds=1, cpu_s=1), 3)])
def test_a_run_that_failed_isnt_counted(tmp_path: Path, text: str, code: int) -> None:
    with pytest.raises(BenchmarkError, match=f"exit code {code}"):
        work(tmp_path).measure(saying(text, code), "exactly_once_v2")
