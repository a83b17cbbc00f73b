"""The benchmark `opening`: what it makes of logs and outputs."""

from __future__ import annotations

from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.errors import BenchmarkError
from benchmarks.opening import CALLED, CALLS, OPEN, PARTITIONS, SLOW_S, STORES, app
from benchmarks.opening.work import HEADINGS, Appended, Opened, Span, doubled, figures, longest, table, task_of
from milestones import StoreSpec
from milestones.testing import TopologyTestDriver

EVERY_S = 0.1
SPAN = Span(start=100.0, end=120.0, stayed=frozenset(range(0, PARTITIONS, 2)), slow=1)
LOG = """\
99.000 INFO benchmarks.opening: commit took 3.000 s
101.000 INFO benchmarks.opening: commit took 0.060 s
102.100 INFO benchmarks.opening: commit took 0.100 s
"""


def run(*, without: dict[int, tuple[float, float]]) -> dict[str, float]:
    """The figures of outputs 20 ms after their inputs, but for those of a task (by `without`) in a time: they come at
    the end of it."""
    given, inputs, outputs = [], {}, []
    for number in range(PARTITIONS * 300):
        task, round_ = task_of(number), number // PARTITIONS
        inputs[number] = at = 94.0 + round_ * EVERY_S
        given.append(at - 0.01)
        start, end = without.get(task, (0.0, 0.0))
        outputs.append(Appended(number, (end if start < at < end else at) + 0.02))
    return figures(given, inputs, outputs, SPAN)


def test_without_a_pause_each_is_the_time_between_two_inputs() -> None:
    found = run(without={})
    assert all(found[name] == pytest.approx(EVERY_S) for name in ("before", "pause", "moved", "slow"))
    assert (found["late"], found["fed"]) == (pytest.approx(0.02), pytest.approx(0.01))


def test_pauses_count_for_tasks_that_stayed_for_tasks_that_moved_and_for_the_slow_one() -> None:
    found = run(without={4: (101.05, 103.05), 5: (101.05, 105.05), 1: (101.05, 114.05)})
    assert found["before"] == pytest.approx(EVERY_S)
    assert found["pause"] == pytest.approx(2.05)
    assert found["late"] == pytest.approx(1.97)
    assert found["moved"] == pytest.approx(4.05)
    assert found["slow"] == pytest.approx(13.05)


def test_a_log_says_what_took_longest_from_the_stop_on() -> None:
    assert longest("commit", LOG, 100.0, 120.0) == 0.1
    assert longest("commit", LOG, 95.0, 100.0) == 3.0
    assert longest("tasks", LOG, 100.0, 120.0) == 0


def test_outputs_twice_are_an_error_under_exactly_once_only_and_missing_ones_always() -> None:
    assert doubled(Counter([0, 1, 1, 2]), 3, "at_least_once") == 1
    assert doubled(Counter([0, 1, 2]), 3, "exactly_once_v2") == 0
    with pytest.raises(BenchmarkError, match="1 outputs are there twice"):
        doubled(Counter([0, 1, 1, 2]), 3, "exactly_once_v2")
    with pytest.raises(BenchmarkError, match="1 of 3 inputs"):
        doubled(Counter([0, 1, 1]), 3, "at_least_once")


def test_a_record_is_written_into_each_store_and_put_out_in_its_partition() -> None:
    with TopologyTestDriver(app.topology("in", "out")) as driver:
        driver.pipe("in", b"0-7", b"5", 0)
        assert [(one.partition, one.key, one.value) for one in driver.unread("out")] == [(0, b"0-7", b"5")]
        assert [driver.store(name).get("0-7") for name in STORES] == [b"5"] * len(STORES)


def test_only_the_last_store_of_the_task_in_the_file_opens_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slept: list[float] = []
    opened: list[str] = []

    class Storage:
        task = "0_3"

        def open(self, spec: StoreSpec) -> None:
            opened.append(spec.name)

    monkeypatch.setattr(app, "LocalTaskStorage", Storage)
    monkeypatch.setattr("time.sleep", slept.append)
    app.slow_opening(tmp_path / "slow")

    def open_all() -> int:
        for name in STORES:
            Storage().open(StoreSpec(name))
        return len(slept)

    assert open_all() == 0, "there is no such file"
    (tmp_path / "slow").write_text("0_4")
    assert open_all() == 0, "it is another task's"
    (tmp_path / "slow").write_text("0_3")
    with caplog.at_level("INFO"):
        assert open_all() == 1
    assert OPEN in caplog.text
    assert opened == 3 * list(STORES)


def test_the_next_call_is_slow_while_the_file_says_so_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(app.InEachStore, "process", app.InEachStore.process)
    monkeypatch.setattr("time.sleep", slept.append)
    app.slow_calls(tmp_path / "slow")
    with TopologyTestDriver(app.topology("in", "out")) as driver, caplog.at_level("INFO"):
        (tmp_path / "slow").write_text("0_4")
        driver.pipe("in", b"0-7", b"5", 0)
        assert slept == []
        (tmp_path / "slow").write_text(CALLS)
        driver.pipe("in", b"0-7", b"6", 0)
        driver.pipe("in", b"0-7", b"7", 0)
        assert [one.value for one in driver.unread("out")] == [b"5", b"6", b"7"]
    assert slept == [SLOW_S]
    assert CALLED in caplog.text


def test_the_table_has_a_row_for_each_run_and_a_heading_for_each_figure() -> None:
    run_ = Opened("m1", "at_least_once", 0.2, 0.2, 0.05, 0.01, 1, 13, 0.1, 0.1, 0.1, 0.1, 0.1, 1, 0, 0, 9_000, 2)
    out = StringIO()
    Console(file=out, width=200).print(table("opening", [run_]))
    (row,) = [line.split() for line in out.getvalue().splitlines() if "at_least_once" in line]
    assert len(row) == len(HEADINGS)
