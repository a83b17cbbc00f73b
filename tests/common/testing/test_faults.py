"""Fault points: what arms them, what they do."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

import milestones
from milestones.common.errors import TaskCorruptedError
from milestones.common.testing import faults
from milestones.common.testing.faults import POINTS, InjectedFault, armed, parse


def test_unset_nothing_happens_anywhere() -> None:
    reach = armed({})
    for point in POINTS:
        reach(point)


def test_a_fault_happens_at_the_nth_time_its_point_is_reached_and_only_then() -> None:
    reach = armed({"MILESTONES_FAULT": "restore.batch:raise:3"})
    reach("restore.batch")
    reach("restore.complete")
    reach("restore.batch")
    with pytest.raises(InjectedFault, match=r"injected at restore\.batch"):
        reach("restore.batch")
    reach("restore.batch")


def test_an_abort_is_what_rolls_tasks_back() -> None:
    with pytest.raises(TaskCorruptedError, match=r"injected at commit\.after-flush"):
        armed({"MILESTONES_FAULT": "commit.after-flush:abort"})("commit.after-flush")


def test_several_faults_can_be_armed_also_at_one_point(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(faults.time, "sleep", slept.append)
    reach = armed({"MILESTONES_FAULT": "restore.batch:sleep=20,restore.batch:raise:2,restore.complete:raise"})
    reach("restore.batch")
    assert slept == [0.02]
    with pytest.raises(InjectedFault):
        reach("restore.batch")
    with pytest.raises(InjectedFault):
        reach("restore.complete")


@pytest.mark.parametrize(("action", "sent"), [("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)])
def test_kill_and_stop_are_signals_that_the_thread_takes_at_once(
    action: str, sent: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(faults.signal, "pthread_kill", lambda thread, number: signals.append((thread, number)))
    armed({"MILESTONES_FAULT": f"restore.batch:{action}"})("restore.batch")
    assert signals == [(threading.get_ident(), sent)]


@pytest.mark.parametrize(
    "text",
    [
        "nowhere:kill",
        "restore.batch",
        "restore.batch:explode",
        "restore.batch:sleep",
        "restore.batch:sleep=soon",
        "restore.batch:kill:0",
        "restore.batch:kill:often",
        "restore.batch:kill:1:2",
        "restore.batch:kill:1@nowhere",
        "restore.batch:kill@",
        ":kill",
    ],
)
def test_what_names_no_fault_is_an_error_that_lists_the_points_and_actions(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected point:action:nth.*commit\.after-commit.*raise, sleep=MS"):
        parse(text)


def test_a_fault_may_count_from_when_another_point_was_reached() -> None:
    reach = armed({"MILESTONES_FAULT": "restore.batch:raise:2@restore.complete"})
    for point in ("restore.batch", "restore.batch", "restore.complete", "restore.batch", "restore.complete"):
        reach(point)
    with pytest.raises(InjectedFault, match=r"restore\.batch"):
        reach("restore.batch")


def test_the_text_is_read_as_it_says() -> None:
    first, second = parse("commit.after-flush:sleep=250:2,rebalance.assigned:stop")
    assert (first.point, first.action, first.nth) == ("commit.after-flush", "sleep=250", 2)
    assert (second.point, second.action, second.nth) == ("rebalance.assigned", "stop", 1)
    assert parse("") == []


def test_every_point_is_in_the_code_once_and_every_point_in_the_code_is_in_the_table() -> None:
    package = Path(milestones.__file__).parent
    # `common` is a link in a checkout, which `rglob` doesn't follow.
    files = {path.resolve() for folder in (package, package / "common") for path in folder.rglob("*.py")}
    sources = [path.read_text() for path in files if path.name != "faults.py"]
    code = "\n".join(sources)
    for point in POINTS:
        assert code.count(f'reach("{point}")') == 1, point
    assert code.count('reach("') == len(POINTS)
