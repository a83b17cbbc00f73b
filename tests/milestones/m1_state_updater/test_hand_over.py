"""A stream loop with a state updater: what the group is told while a task is in transit, and who gets its stores."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common.errors import StateError
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import JoinNeeded, Lost
from milestones.common.task.lifecycle import TaskState
from milestones.stream_thread.task_registry import Phase
from tests.milestones.fakes import LOG, A, B
from tests.milestones.stepped import RunningUpdater, UpdaterWorld


def restoring(*values: str) -> RunningUpdater:
    """Task 0_0 restores, and its updater hangs."""
    r = RunningUpdater()
    r.world.logs[LOG].add(*(values or ("1", "2")), key="k")
    r.world.restorer.next.extend([Fetched()] * 50)
    r.rebalance(0, steps=3)
    assert r.tasks.owned == {A}
    assert r.world.updaters.newest.handover.held.keys() == {A}
    r.world.updaters.newest.hangs = True
    return r


def unhang(r: RunningUpdater, steps: int = 8) -> None:
    r.world.restorer.next.clear()
    r.world.updaters.newest.hangs = False
    r.step(steps)


def test_tasks_are_restored_by_the_updater_and_process_then() -> None:
    r = RunningUpdater(UpdaterWorld().logged("1", key="old"))
    r.run(0)
    r.feed("x", steps=3)
    assert r.world.updaters.newest.handover.held == {}
    assert [output.value for _, output in r.world.producer.sent if output.topic == "out"] != []


def test_a_revocation_is_answered_at_once_while_a_write_of_the_task_hangs() -> None:
    r = restoring()
    r.rebalance()
    assert r.tasks.everything == frozenset()
    assert r.world.member.rejoins == ["tasks were released to their new owners"]
    assert r.world.state.held == {A}, "its lock stays with it until it is back"
    r.rebalance()
    assert r.world.member.joins[-1].active == frozenset()
    unhang(r)
    assert r.world.state.held == set()


def test_other_tasks_go_on_processing_while_the_updater_hangs() -> None:
    r = RunningUpdater().run(1)
    r.world.logs[LOG].add("1", key="k")
    r.world.restorer.next.extend([Fetched()] * 50)
    r.rebalance(0, 1, steps=3)
    r.world.updaters.newest.hangs = True
    for number in range(5):
        r.feed(f"{number}", partition=1)
    assert r.tasks.processing[B].counters.processed == 5
    assert A not in r.tasks.processing


def test_a_task_that_comes_back_to_us_while_it_is_in_transit_goes_on_with_the_same_stores() -> None:
    r = restoring()
    r.rebalance()
    r.rebalance(0, steps=2)
    assert r.tasks.owned == {A}
    unhang(r)
    assert r.tasks.processing.keys() == {A}
    assert r.world.state.content(A).keys() == {b"k"}


def test_a_task_that_changes_its_role_in_transit_keeps_its_stores_open() -> None:
    r = restoring()
    r.rebalance(standby=frozenset({A}), steps=1)
    unhang(r)
    assert (r.tasks.owned, r.tasks.standbys.keys(), r.world.state.opens) == (frozenset(), {A}, 1)
    r.rebalance(0, steps=8)
    assert (r.tasks.processing.keys(), r.world.state.opens) == ({A}, 1)


def test_how_far_a_task_in_transit_is_is_told_to_the_group() -> None:
    r = RunningUpdater(UpdaterWorld().logged("1", "2", key="k"))
    r.rebalance(standby=frozenset({A}), steps=4, ms=200)
    r.world.updaters.newest.hangs = True
    r.rebalance(0)
    r.rebalance(0)
    assert r.world.member.joins[-1].positions == {A: 2}
    assert r.world.member.joins[-1].lags == {}


def told_at_a_join(r: RunningUpdater) -> Any:
    """What the group is told of positions when the member joins now."""
    r.world.member.events.append(JoinNeeded("a test"))
    r.step()
    return r.world.member.joins[-1].positions


@pytest.mark.parametrize("turns", [0, 1])
def test_how_far_a_standby_is_that_comes_back_is_told_to_the_group(turns: int) -> None:
    r = RunningUpdater()
    r.world.logs[LOG].add("1", "2", key="k")
    r.rebalance(standby=frozenset({A}))
    r.step(4, ms=200)
    r.assign()
    assert r.world.updaters.newest.handover.held == {}
    r.step(turns)
    assert r.tasks.places() == {A: Phase.LEAVING}
    assert told_at_a_join(r) == {A: 2}


def test_a_task_that_comes_back_restored_is_told_to_the_group_as_complete() -> None:
    r = restoring()
    r.world.restorer.next.clear()
    r.world.updaters.newest.hangs = False
    r.world.updaters.step(2)
    assert r.world.updaters.newest.handover.held == {}
    assert told_at_a_join(r) == {}, "a task that has a position restores"


def test_lost_membership_is_answered_at_once_too() -> None:
    r = restoring()
    r.hear(Lost("session timeout"))
    assert r.tasks.owned == frozenset()
    unhang(r)
    assert r.world.state.held == set()


def failing(task: Any, error: BaseException) -> None:
    task.restore = Mock(side_effect=error)


def test_tasks_of_an_updater_that_died_are_opened_anew_and_restored() -> None:
    r = restoring()
    failing(r.world.state.tasks[A], RuntimeError("a bug"))
    unhang(r, 12)
    assert len(r.world.updaters.all) == 2
    assert r.tasks.processing.keys() == {A}
    assert (r.world.state.opens, r.world.state.held) == (2, {A})


def test_standbys_of_an_updater_that_died_are_opened_anew() -> None:
    r = RunningUpdater(UpdaterWorld().logged("1", key="k"))
    r.world.restorer.next.extend([Fetched()] * 2)
    r.rebalance(standby=frozenset({A}), steps=1)
    failing(r.world.state.standbys[A], RuntimeError("a bug"))
    r.step(10, ms=200)
    assert len(r.world.updaters.all) == 2
    assert r.loop._restoration.lags() == {A: 0}


def test_a_task_that_cannot_be_restored_is_closed_and_ends_the_thread_with_its_error() -> None:
    r = restoring()
    failing(r.world.state.tasks[A], StateError("disk full"))
    with pytest.raises(StateError, match="disk full"):
        unhang(r)
    r.loop.fail(shut_application_down=None)
    r.loop.close()
    assert (r.tasks.owned, r.world.state.held) == (frozenset(), set())


@pytest.mark.parametrize("error", [StateError("disk full"), RuntimeError("a bug")])
def test_a_task_that_fails_while_it_changes_its_role_is_opened_anew(error: Exception) -> None:
    r = restoring()
    failing(r.world.state.tasks[A], error)
    r.world.restorer.next.clear()
    r.world.updaters.newest.hangs = False
    r.world.updaters.step(2)
    r.assign(standby=frozenset({A}))
    r.step(4)
    assert r.tasks.standbys.keys() == {A}
    assert (r.world.state.opens, r.world.state.held) == (2, {A})


def test_the_end_of_a_thread_waits_for_tasks_in_transit_last_and_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    r = restoring()
    r.loop.shut_down(leave_group=True)
    assert r.world.updaters.newest.joined == []
    began_ms = r.world.clock.monotonic_ms()
    r.loop.close()
    assert r.world.clock.monotonic_ms() - began_ms == r.world.config.close_timeout_ms
    assert "ends without tasks 0_0" in caplog.text
    assert r.world.state.held == {A}
    r.world.updaters.newest.hangs = False
    r.world.updaters.newest.step()
    assert r.world.state.tasks[A].state is TaskState.CLOSED
    assert r.world.state.held == set()


def test_a_thread_that_ends_while_nothing_hangs_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    r = RunningUpdater(UpdaterWorld()).run(0)
    r.rebalance(0, standby=frozenset({B}), steps=2)
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert (r.world.state.held, r.world.restorer.closed) == (set(), True)
    assert "ends without" not in caplog.text
