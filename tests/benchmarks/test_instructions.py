"""The benchmark `instructions`: what is counted, where it is put down, and what is said of a change."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.alone import instructions_
from benchmarks.errors import BenchmarkError
from benchmarks.instructions import counters, native, work
from benchmarks.instructions.counters import Counter, best, counted, wrapped
from benchmarks.instructions.functions import Function, functions, prepare
from benchmarks.instructions.job import PARTS, Fetched, Plan, _consumed, run
from benchmarks.instructions.parts import Parts
from benchmarks.instructions.programs import COUNT, WORKS, program
from benchmarks.instructions.work import (
    CHANGED,
    NOT_KEPT,
    SAME,
    Cost,
    Profile,
    compared,
    differences,
    keep,
    measure,
    profile,
    profile_table,
    tables,
)

SIZES = {"records": 500, "intervals": 1, "keys": 100, "seed": 1}

counts_instructions = pytest.mark.skipif(best() != "instructions", reason="needs valgrind and a C compiler")


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
    run(Plan("m6", COUNT, "cpu-time", False, **SIZES), tmp_path, tmp_path)
    assert len(left_out) == 2
    assert all(left_out)


def test_a_stage_that_there_is_not_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match="m99"):
        measure([COUNT], ["m99"], "cpu-time", lambda _: None, **SIZES)


@counts_instructions
@pytest.mark.timeout(600)
def test_two_counts_of_instructions_agree_and_leave_out_the_start_of_the_process() -> None:
    """Imports alone are hundreds of millions of instructions, a million for each record here."""
    first, second = measure([COUNT], ["m6", "m6"], "instructions", lambda _: None, **SIZES)
    assert all(first.of(part) > 0 for part in PARTS)
    assert first.of("process") == pytest.approx(second.of("process"), rel=0.03)
    assert 30_000 < first.of("process") < 300_000


@counts_instructions
@pytest.mark.timeout(600)
def test_a_profile_has_the_costs_of_python_functions() -> None:
    (found,) = profile([COUNT], ["baseline"], **SIZES)
    by_name = {function.name.split(" ")[-1]: function for function in found.functions}
    user, write = by_name["add"], by_name["TimedRows._put_timed"]
    assert user.calls == write.calls == 1.0
    assert 0 < user.own <= user.inclusive
    assert write.own < write.inclusive < by_name["Runner._run"].inclusive < by_name["Parts.interval"].inclusive
    assert [function.own for function in found.functions] == sorted((f.own for f in found.functions), reverse=True)


def test_what_lies_between_two_marks_counts_for_the_second_one() -> None:
    counter = Counter("cpu-time", Path())
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


def test_the_costs_of_functions_are_read_from_the_dumps_of_the_counted_parts(tmp_path: Path) -> None:
    """`f` calls `g` twice, and both call C functions; of a pair's cost, what it calls is a part."""
    calls = (
        "fn=(9) run_frame\n0 1\ncfn=(1) pair_0\ncalls=1 0\n0 100\n\n"
        "fn=(1)\n0 5\ncfn=(2) eval\ncalls=1 0\n+3 95\n\n"
        "fn=(2)\n0 40\ncfn=(3) pair_1\ncalls=2 0\n* 50\ncfn=(4) malloc\ncalls=9 0\n0 5\n\n"
        "fn=(3)\n0 10\ncfn=(2)\ncalls=2 0\n0 40\n"
    )
    for number in (1, 2):
        (tmp_path / f"counts.{number}-01").write_text(f"part: {number}\nthread: 1\n\n{calls}\ntotals: 100\n")
    report = {"parts": ["", "send"], "pairs": [["main", "f"], ["f", "g"]]}
    found = functions(report, tmp_path, 2)
    assert found == [Function("f", 0.5, 25.0, 50.0), Function("g", 1.0, 25.0, 25.0)]


def test_a_function_that_calls_itself_is_counted_once(tmp_path: Path) -> None:
    calls = "fn=(1) pair_0\n0 30\n\nfn=(2) pair_1'2\n0 10\n"
    (tmp_path / "counts.1-01").write_text(f"thread: 1\n\n{calls}\ntotals: 40\n")
    report = {"parts": ["send"], "pairs": [["main", "f"], ["f", "f"]]}
    assert functions(report, tmp_path, 1) == [Function("f", 0.0, 30.0, 30.0)]


def test_a_profile_shows_the_most_expensive_functions() -> None:
    shown = profile_table(Profile(COUNT, "m6", [Function(f"f{n}", 1.0, 9.0 - n, 10.0) for n in range(3)]), most=2)
    assert list(shown.columns[0].cells) == ["f0", "f1"]


def test_only_instructions_need_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert best() == "cpu-time"
    assert wrapped("cpu-time", ["python", "x"], tmp_path) == ["python", "x"]
    with pytest.raises(BenchmarkError, match="valgrind is missing"):
        wrapped("instructions", ["python", "x"], tmp_path)


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: "/usr/bin/valgrind" if tool == "valgrind" else None)
    assert best() == "cpu-time"
    with pytest.raises(BenchmarkError, match=r"no C compiler \(cc, gcc, clang\)"):
        wrapped("instructions", ["python", "x"], tmp_path)


@pytest.mark.skipif(native.compiler() is None, reason="needs a C compiler")
def test_a_missing_header_is_named(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("#include <nowhere/to_be_found.h>\n")
    with pytest.raises(BenchmarkError, match=r"a.c can't be compiled; it needs that header\n(.|\n)*to_be_found"):
        native.compiled(source, tmp_path / "a", needs="that header")


def test_a_profile_names_the_python_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", (3, 12, 0, "final", 0))
    with pytest.raises(BenchmarkError, match=r"needs CPython 3\.11"):
        prepare(tmp_path)


@pytest.mark.parametrize("more", [["--keep"], ["--compare"], ["--counter", "cpu-time"]])
def test_a_profile_is_neither_kept_nor_compared(more: list[str]) -> None:
    found = CliRunner().invoke(instructions_, ["--profile", *more])
    assert found.exit_code == 2
    assert "leave out" in found.output


def test_a_change_by_more_than_three_in_a_hundred_names_its_part(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    keep([cost()], SIZES, kept)
    assert differences([cost()], SIZES, kept) == ["count, m6: +0.0% of the kept 7,000; no part by 3% of all"]
    assert differences([cost(send=1_500.0)], SIZES, kept) == ["count, m6: +7.1% of the kept 7,000; send +500"]


@pytest.mark.parametrize(
    ("by", "result"), [(-211.0, CHANGED), (-209.0, SAME), (0.0, SAME), (209.0, SAME), (211.0, CHANGED)]
)
def test_a_change_of_three_in_a_hundred_up_or_down_is_a_change(tmp_path: Path, by: float, result: int) -> None:
    kept = tmp_path / "kept.json"
    keep([cost()], SIZES, kept)
    assert compared([cost(send=1_000.0 + by)], SIZES, kept) == result


def test_what_is_not_kept_is_no_change_and_hides_none(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    other = replace(cost(), work="tumbling")
    assert compared([cost()], SIZES, kept) == NOT_KEPT
    keep([cost()], SIZES, kept)
    assert compared([cost(), other], SIZES, kept) == NOT_KEPT
    assert compared([other, cost(send=1_500.0)], SIZES, kept) == CHANGED
    assert compared([cost()], {**SIZES, "keys": 5}, kept) == NOT_KEPT


@pytest.mark.parametrize(("arguments", "code"), [(["--compare"], 1), ([], 0), (["--compare", "--keep"], 1)])
def test_only_a_comparison_ends_with_the_code_of_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int
) -> None:
    sizes = {"records": 3_000, "intervals": 5, "keys": 4_000, "seed": 1}
    monkeypatch.setattr(work, "measure", lambda *_, **__: [cost(send=1_500.0)])
    for function in ("compared", "differences", "keep"):
        monkeypatch.setattr(work, function, partial(getattr(work, function), file=tmp_path / "kept.json"))
    work.keep([cost()], sizes)
    assert CliRunner().invoke(instructions_, arguments).exit_code == code


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
    plan = Plan("m6", COUNT, "cpu-time", False, 500, 1, 10, 1)
    consumer: Any = SimpleNamespace(_consumer=Fetched([]))
    with pytest.raises(SystemExit, match=r"nothing after 0 of 1,000 records.* fewer --records"):
        _consumed(consumer, plan, Counter("cpu-time", Path()))
