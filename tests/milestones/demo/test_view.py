"""What a watcher of the demo sees."""

from __future__ import annotations

import io

from rich.console import Console

from milestones.demo.instance import Report
from milestones.demo.view import Display, InstanceRow, View, line, panel

WORKING = Report("RUNNING", "baseline", {"0_0": "running", "1_2": "running"}, {}, 1000)
RESTORING = Report("REBALANCING", "baseline", {"0_0": "running", "1_2": "restoring"}, {"1_2": 1234}, 10)
VIEW = View(
    lines=8000,
    sent=4000,
    read=3900,
    rate=12345.6,
    lag=77,
    rows=[InstanceRow(1, 4711, WORKING), InstanceRow(2, 4712, None)],
    top=[("the", 5000), ("and", 4000)],
    stage="baseline",
)


def shown(view: View) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(panel(view))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_panel_shows_speed_lag_stage_instances_tasks_and_top_words() -> None:
    text = shown(VIEW)
    for part in ("12,346 records/s", "lag 77", "baseline", "4711", "RUNNING", "2: 0_0 1_2", "killed", "the 5,000"):
        assert part in text


def test_the_panel_says_how_much_a_task_has_still_to_restore() -> None:
    assert "1_2 (1,234 left)" in shown(View(1, 1, 1, 0.0, 0, [InstanceRow(1, 1, RESTORING)], [], "baseline"))


def test_the_panel_can_be_drawn_before_anything_has_happened() -> None:
    assert "0 of 8,000 lines" in shown(View(8000, 0, 0, 0.0, 0, [InstanceRow(1, 1, Report())], [], "baseline"))


def test_where_there_is_no_terminal_a_line_says_the_same() -> None:
    assert line(VIEW) == (
        "4,000 of 8,000 lines sent, 3,900 counted; 12,346 records/s, lag 77; "
        "instance 1 RUNNING with 2 tasks, instance 2 killed"
    )


def test_events_are_not_taken_for_markup() -> None:
    console = Console(file=io.StringIO(), width=120)
    with Display(console) as display:
        display.event("ends with [/nothing]")
    assert isinstance(console.file, io.StringIO)
    assert "ends with [/nothing]" in console.file.getvalue()


def test_a_line_of_an_instance_that_is_no_report_is_passed_over() -> None:
    assert Report.parse(b"Traceback (most recent call last):\n") is None
    assert Report.parse(b'{"state": "RUNNING"}') is None
    assert Report.parse(b"[1]") is None


def test_a_report_comes_through_as_it_was_written() -> None:
    data = b'{"state":"RUNNING","stage":"m1","tasks":{"0_1":"running"},"restoring":{},"records":5,"lag":1}'
    assert Report.parse(data) == Report("RUNNING", "m1", {"0_1": "running"}, {}, 5)


def test_a_report_tells_tasks_that_run_from_copies() -> None:
    told = Report(tasks={"0_0": "running", "0_1": "restoring", "0_2": "standby"})
    assert told.active == {"0_0", "0_1"}
