"""Rounds, rows, and what is told of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from unittest.mock import ANY

import orjson
import pytest
from rich.console import Console

from benchmarks.cli import cli, main
from benchmarks.contenders import (
    CHANGELOG,
    HERE,
    PROGRAMS,
    RUNS,
    Contender,
    ours,
    peers,
    program_of,
    with_instances,
    with_late_answers,
    with_tasks,
    with_threads,
    with_workers,
)
from benchmarks.errors import BenchmarkError
from benchmarks.job import GUARANTEES, Job
from benchmarks.process import Measured
from benchmarks.report import plot, plot_shares, ratio, table, write_json
from benchmarks.rows import Figure, Row, run
from benchmarks.works import WORKS
from milestones.common.errors import ConfigError
from milestones.flags import stage_names

FIGURES = (Figure("speed", "records/s", compared=True), Figure("cpu", "CPU s", digits=1))
JOB = Job("localhost:9092", "app", "exactly_once_v2", "in", "out", "/state")


class Fake:
    """A work that takes no time: the n-th run has speed n."""

    name = "fake"
    figures = FIGURES

    def __init__(self) -> None:
        self.runs: list[tuple[str, str]] = []

    def prepare(self, contenders: Iterable[Contender]) -> None:
        pass

    def measure(self, contender: Contender, guarantee: str) -> Mapping[str, float]:
        self.runs.append((contender.name, guarantee))
        return {"speed": float(len(self.runs)), "cpu": 1.0}


def contender(name: str) -> Contender:
    return Contender(name, lambda job: job.arguments())


def rows() -> list[Row]:
    rounds = {"loop": (90.0, 200.0, 100.0), "ours": (40.0, 41.0, 90.0)}
    return [
        Row("fake", name, "at_least_once", [{"speed": speed, "cpu": 1.0} for speed in speeds])
        for name, speeds in rounds.items()
    ]


def test_every_contender_runs_once_per_guarantee_and_round_after_one_run_that_does_not_count() -> None:
    work = Fake()
    found = run(work, [contender("a"), contender("b")], GUARANTEES, rounds=3, seed=1, log=lambda _: None)
    assert len(work.runs) == 1 + 3 * 4
    for begin in range(1, len(work.runs), 4):
        assert len(set(work.runs[begin : begin + 4])) == 4
    assert [(row.contender, row.guarantee, len(row.rounds)) for row in found] == [
        (name, guarantee, 3) for name in "ab" for guarantee in GUARANTEES
    ]


def test_the_order_is_shuffled_and_the_same_for_the_same_seed() -> None:
    first, second = Fake(), Fake()
    for work in (first, second):
        run(work, [contender(name) for name in "abcd"], GUARANTEES, rounds=2, seed=5, log=lambda _: None)
    assert first.runs == second.runs
    assert first.runs[1:9] != first.runs[9:]


def test_a_contender_that_takes_part_twice_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="once"):
        run(Fake(), [contender("a"), contender("a")], GUARANTEES, rounds=1, seed=1, log=lambda _: None)


def test_the_ratio_is_of_the_medians_and_under_the_same_guarantee() -> None:
    loop, mine = rows()
    assert ratio(mine, "speed", [loop, mine]) == pytest.approx(0.41)
    assert ratio(Row("fake", "ours", "exactly_once_v2", mine.rounds), "speed", [loop]) is None


def test_a_figure_may_be_compared_with_the_same_contender_under_another_condition() -> None:
    speeds = {"ours, 0 ms late": 100.0, "ours, 300 ms late": 80.0, "theirs, 300 ms late": 10.0}
    found = [Row("fake", name, "at_least_once", [{"speed": speed}]) for name, speed in speeds.items()]
    shares = [ratio(row, "speed", found, "{}, 0 ms late") for row in found]
    assert shares == [1.0, pytest.approx(0.8), None]
    text, figure = StringIO(), Figure("speed", "records/s", compared=True, yardstick="{}, 0 ms late")
    Console(file=text, width=120).print(table("title", [figure], found, "loop"))
    assert "of 0 ms late" in text.getvalue()
    assert "80%" in text.getvalue()


def test_the_table_shows_medians_and_ratios() -> None:
    text = StringIO()
    Console(file=text, width=120).print(table("title", FIGURES, rows()))
    (line,) = [line for line in text.getvalue().splitlines() if "ours" in line]
    assert line.split() == ["ours", "at_least_once", "41", "41%", "1.0"]


def test_json_has_the_medians_and_every_round(tmp_path: Path) -> None:
    write_json(tmp_path / "rows.json", {"rounds": 3}, rows=[row.as_json() for row in rows()])
    document = orjson.loads((tmp_path / "rows.json").read_bytes())
    assert document["rows"][1]["speed"] == 41.0
    assert [measured["speed"] for measured in document["rows"][1]["rounds"]] == [40.0, 41.0, 90.0]
    assert {"work", "contender", "guarantee"} < document["rows"][1].keys()
    assert {"date", "processor", "kafka"} < document["machine"].keys()


def test_a_plot_is_drawn_and_names_each_guarantee_once(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(tmp_path / "rows.svg", "title", FIGURES, rows())
    assert (tmp_path / "rows.svg").read_text().count("<!-- at_least_once -->") == 1


def test_a_plot_of_shares_names_each_work_and_each_other_contender_once(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    failed = [Row("other", "ours", "at_least_once", [], "crashed"), Row("other", "loop", "at_least_once", [], "late")]
    plot_shares(tmp_path / "shares.svg", "title", FIGURES, [*rows(), *failed], "loop")
    drawn = (tmp_path / "shares.svg").read_text()
    assert [drawn.count(f"<!-- {name} -->") for name in ("fake", "other", "ours", "loop")] == [1, 1, 1, 0]


def test_a_job_survives_its_command_line() -> None:
    assert Job.parse(JOB.arguments()) == JOB
    with pytest.raises(SystemExit, match="expected"):
        Job.parse([*JOB.arguments(), "colour=blue"])


def test_ours_is_named_by_its_stage_and_told_it() -> None:
    found = ours("baseline", "count")
    assert found.name == "milestones baseline"
    assert "stage=baseline" in found.command(JOB)


def test_what_a_contender_logs_and_puts_out_is_known() -> None:
    thin = {stage: ours(stage, "count").thin for stage in stage_names()}
    assert {stage for stage, topics in thin.items() if topics} == {"m5", "m6"}
    assert set().union(*thin.values()) <= {CHANGELOG}
    with pytest.raises(BenchmarkError, match="leaves outputs out, which only count, commits can check"):
        peers(["kafka-streams-cached"], "latency")


def test_an_unknown_stage_or_peer_is_an_error_before_anything_runs() -> None:
    with pytest.raises(ConfigError):
        ours("m99", "count")
    with pytest.raises(BenchmarkError, match="there is no peer 'flink'"):
        peers(["flink"], "count")


def test_each_contender_takes_part_with_each_number_of_threads_instances_and_tasks() -> None:
    alone = Contender("loop", lambda job: job.arguments(), threaded=False)
    assert with_threads([alone, contender("ours")], [1]) == [replace(alone, threads=1), ANY]
    found = with_instances([alone, contender("ours")], [1, 2])
    assert [one.name for one in found] == ["loop", "ours, 1 instance", "ours, 2 instances"]
    found = with_threads([alone, contender("ours")], [1, 4])
    assert [(one.name, one.threads) for one in found] == [("loop", 1), ("ours, 1 thread", 1), ("ours, 4 threads", 4)]
    found = with_late_answers([contender("ours")], [0, 3000])
    assert [(one.name, one.late_ms) for one in found] == [("ours, 0 ms late", 0), ("ours, 3,000 ms late", 3000)]
    found = with_tasks([contender("ours")], [4, 64])
    assert [(one.name, one.tasks) for one in found] == [("ours, 4 tasks", 4), ("ours, 64 tasks", 64)]
    assert [one.name for one in with_tasks([contender("ours")], [64])] == ["ours"]


def test_ours_take_part_with_each_number_of_workers_and_peers_with_as_many_threads() -> None:
    alone = Contender("loop", lambda job: job.arguments(), threaded=False, peer=True)
    java = replace(contender("java"), peer=True)
    found = with_workers([alone, java, contender("ours")], [1, 2])
    assert [(one.name, one.workers, one.threads) for one in found] == [
        ("loop", 1, 1), ("java, 1 thread", 1, 1), ("java, 2 threads", 1, 2), ("ours, 1 worker", 1, 1),
        ("ours, 2 workers", 2, 1),
    ]  # fmt: skip
    assert [one.name for one in with_workers([java, contender("ours")], [2])] == ["java", "ours"]


def test_what_the_workers_of_a_process_use_counts_too(tmp_path: Path) -> None:
    parent = "import subprocess as s, sys; [w.wait() for w in [s.Popen([sys.executable, *sys.argv[1:]]) for _ in 'ab']]"
    burns = "import time\nwhile time.process_time() < 0.5: pass\ntime.sleep(100)"
    with Measured([sys.executable, "-c", parent, "-c", burns], tmp_path / "log", workers=2) as measured:
        measured.wait(lambda: measured._samples[-1].cpu_s > 0.8, 60)
        for worker in measured._workers:
            worker.terminate()
        assert measured.ended().total_cpu_s > 0.8


@pytest.mark.parametrize("numbers", ["", "0", "1,1", "1,x", "4,-1"])
def test_numbers_of_threads_are_different_ones_from_one_on(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "count", "--threads", numbers])
    assert main() == 2


def test_works_that_share_a_program_run_it() -> None:
    assert "benchmarks.last.app" in ours("baseline", "skew").command(JOB)
    assert "benchmarks.count.app" in ours("baseline", "count").command(JOB)
    for work in RUNS:
        assert (HERE / program_of(work) / f"{program_of(work).capitalize()}.java").exists()
    assert all((HERE / folder / "app.py").exists() for folder in PROGRAMS.values())


def test_every_work_has_a_command_with_stages_that_this_version_has() -> None:
    for measured in WORKS:
        assert set(measured.stages.split(",")) <= set(stage_names())
        assert measured.name in cli.commands
