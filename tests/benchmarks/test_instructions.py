"""The benchmark `instructions`: what is counted, where it is put down, and what is said of a change."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.alone import instructions_
from benchmarks.errors import BenchmarkError
from benchmarks.instructions import counters, work
from benchmarks.instructions.counters import Counter, counted, wrapped
from benchmarks.instructions.job import PARTS, Fetched, Plan, _consumed, run
from benchmarks.instructions.parts import Parts
from benchmarks.instructions.programs import COUNT, WORKS, program
from benchmarks.instructions.work import Cost, differences, keep, measure, tables

SIZES = {"records": 500, "intervals": 1, "keys": 100, "seed": 1}


def cost(**parts: float) -> Cost:
    return Cost(COUNT, "m6", "instructions", {**dict.fromkeys(PARTS, 1_000.0), **parts})


@pytest.mark.parametrize("stage", ["baseline", "m4", "m6"])
def test_each_part_of_a_stage_is_counted(stage: str) -> None:
    told: list[str] = []
    (found,) = measure([COUNT], [stage], "cpu-time", told.append, **SIZES)
    assert tuple(found.parts) == PARTS
    assert all(found.of(part) > 0 for part in PARTS)
    assert told == [f"count, {stage}: {found.all:,.0f} ns of CPU per record"]


@pytest.mark.parametrize("work", [work for work in WORKS if work != COUNT])
def test_each_work_is_counted(work: str) -> None:
    (found,) = measure([work], ["m6"], "cpu-time", lambda _: None, **SIZES)
    assert found.of("process") > 0
    assert found.of("send") > 0


def test_a_table_has_its_first_rows_before_what_is_counted() -> None:
    records = list(program("table-join", "in").records(300, 100, 1_000, 1))
    assert len(records) == 300
    assert {topic for topic, *_ in records[:100]} == {"in-other"}
    assert len({key for _, key, _ in records[:100]}) == 100


def test_no_part_has_a_collection_of_what_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_out: list[int] = []
    monkeypatch.setattr(Parts, "interval", lambda *_, told: left_out.append(gc.get_freeze_count()))
    run(Plan("m6", COUNT, "cpu-time", **SIZES), tmp_path)
    assert len(left_out) == 2
    assert all(left_out)


def test_a_stage_that_there_is_not_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match="m99"):
        measure([COUNT], ["m99"], "cpu-time", lambda _: None, **SIZES)


def test_what_lies_between_two_marks_counts_for_the_second_one() -> None:
    counter = Counter("cpu-time")
    sum(range(1_000_000))
    counter.mark()
    counter.mark("nothing")
    spent = counted("cpu-time", counter.report(), Path())
    assert spent[counters.NOWHERE] > spent["nothing"]


def test_the_counts_of_the_thread_that_marks_are_read_from_the_dumps(tmp_path: Path) -> None:
    def dump(number: int, thread: int, count: int) -> None:
        text = f"part: {number}\nthread: {thread}\n\nevents: Ir\nfn=(1) f\n1 5\n\ntotals: {count}\n"
        (tmp_path / f"counts.{number}-{thread:02}").write_text(text)

    for number, thread, count in ((1, 1, 7), (2, 2, 90), (2, 1, 10), (3, 1, 20)):
        dump(number, thread, count)
    report = {"parts": ["", "send", "send"], "spent_ns": {}}
    assert counted("instructions", report, tmp_path) == {"": 7, "send": 30}


def test_only_instructions_need_a_tool(tmp_path: Path) -> None:
    assert wrapped("cpu-time", ["python", "x"], tmp_path) == ["python", "x"]
    assert wrapped("instructions", ["python", "x"], tmp_path)[0] == "valgrind"


def test_a_change_by_more_than_three_in_a_hundred_names_its_part(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    keep([cost()], SIZES, kept)
    assert differences([cost()], SIZES, kept) == ["count, m6: +0.0% of the kept 7,000; no part by more than 3% of all"]
    assert differences([cost(send=1_500.0)], SIZES, kept) == ["count, m6: +7.1% of the kept 7,000; send +500"]


def test_what_can_not_be_compared_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.json"
    assert differences([cost()], SIZES, kept)[0].startswith("no numbers are kept of this Python")
    keep([cost()], SIZES, kept)
    assert differences([cost()], {**SIZES, "keys": 5}, kept)[0].startswith("no numbers are kept")
    assert differences([Cost(COUNT, "m6", "cpu-time", {})], SIZES, kept) == ["none of these is kept, as counted here"]
    monkeypatch.setattr(work, "build", lambda: "another Python")
    assert differences([cost()], SIZES, kept)[0].startswith("no numbers are kept of this Python (another Python)")


def test_numbers_of_other_works_and_stages_stay_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    joins, baseline = replace(cost(), work="table-join"), replace(cost(), stage="baseline")
    keep([cost(), joins, baseline], SIZES, kept)
    keep([cost(send=1_500.0)], SIZES, kept)
    told = differences([cost(send=1_500.0), joins, baseline], SIZES, kept)
    assert [line.split(" of the kept")[0] for line in told] == [
        "count, m6: +0.0%", "table-join, m6: +0.0%", "count, baseline: +0.0%",
    ]  # fmt: skip
    keep([joins], {**SIZES, "keys": 5}, kept)
    assert differences([cost()], {**SIZES, "keys": 5}, kept) == ["none of these is kept, as counted here"]


def test_numbers_of_another_python_stay_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.json"
    keep([cost()], SIZES, kept)
    with monkeypatch.context() as patched:
        patched.setattr(work, "build", lambda: "another Python")
        keep([cost(send=9.0)], SIZES, kept)
    assert differences([cost()], SIZES, kept)[0].startswith("count, m6: +0.0%")


def test_each_work_has_a_table_with_each_part_and_all() -> None:
    first, second = tables([cost(), cost(), replace(cost(), work="tumbling")])
    assert first.row_count == second.row_count == len(PARTS) + 1
    assert (len(first.columns), len(second.columns)) == (3, 2)


def test_a_work_that_there_is_not_is_refused_before_anything_is_counted() -> None:
    found = CliRunner().invoke(instructions_, ["--works", "count,more"])
    assert found.exit_code == 2
    assert "there is no work more, only count, stateless" in " ".join(found.output.replace("│", "").split())


def test_a_broker_that_has_forgotten_records_is_told_with_what_to_do() -> None:
    plan = Plan("m6", COUNT, "cpu-time", 500, 1, 10, 1)
    consumer: Any = SimpleNamespace(_consumer=Fetched([]))
    with pytest.raises(SystemExit, match=r"nothing after 0 of 1,000 records.* fewer --records"):
        _consumed(consumer, plan, Counter("cpu-time"))
