"""What a thread tells of its standbys: to its group, in reports, when a warm-up is ready; and what they outlive."""

from __future__ import annotations

from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import JoinNeeded, Lost
from milestones.common.records import TaskId, TopicPartition
from milestones.instance.context import ThreadReport
from tests.milestones.fakes import FENCED, IN, LOG, A, B, Running, World, passing, put, standby


def test_the_lag_of_a_standby_counts_up_to_the_changelogs_end() -> None:
    world = World()
    world.requests.holds = True
    world.logs[LOG].add("1", "2", "3")
    r = standby(world)
    assert r.tasks.lags() == {}
    world.requests.answer()
    world.restorer.next.append(Fetched())
    r.step()
    assert r.tasks.lags() == {A: 3}
    r.step()
    assert r.tasks.lags() == {A: 0}


def test_a_thread_joins_with_its_standbys_its_positions_and_why() -> None:
    world = World().logged("1", "2", "3")
    world.state.closed = {TaskId(0, 7): 5, TaskId(0, 8): 6}
    r = standby(world, A, active=(1,))
    r.hear(JoinNeeded("a test"))
    said = world.member.joins[-1]
    assert (said.active, said.standby, said.reason) == ({B}, {A}, "a test")
    assert said.positions == {A: 3, TaskId(0, 7): 5, TaskId(0, 8): 6}


def test_an_active_task_that_is_not_restored_yet_tells_how_far_it_is() -> None:
    r = Running(World().logged(*"1234"))
    r.world.state.closed = {B: 2}
    r.world.requests.holds = r.world.member.holds = True
    r.rebalance(0, 1)
    r.world.state.locked.add(B)
    r.world.member.answer()
    r.step()
    r.world.requests.answer()
    r.world.restorer.next.append(Fetched(records={LOG: r.world.logs[LOG].entries[:3]}))  # type: ignore[dict-item]
    r.step()
    assert r.tasks.positions()[A] == 3


def test_a_task_that_was_assigned_and_not_opened_yet_is_as_far_as_what_lies_on_the_disk() -> None:
    r = Running()
    r.world.state.closed = {A: 2}
    r.tasks.assign({A: [IN], B: [TopicPartition("in", 1)]})
    assert r.tasks.positions() == {A: 2, B: 0}


def test_only_the_thread_with_the_lowest_number_tells_what_lies_on_the_disk() -> None:
    r = Running()
    r.world.state.closed = {A: 2}
    assert r.tasks.positions() == {A: 2}
    r.world.context.thread_registry.add()
    r.world.context.thread_registry.remove(1)
    assert r.tasks.positions() == {}


def test_stateless_tasks_have_no_position() -> None:
    r = Running(World(passing()))
    r.tasks.assign({A: [IN]})
    assert r.tasks.positions() == {}


def test_reports_and_metrics_show_standbys() -> None:
    r = standby(World().logged("1", "2"), A, active=(1,))
    r.step(ms=1_000)
    report = next(event for event in reversed(r.world.events) if isinstance(event, ThreadReport))
    assert report.tasks == {A: "standby", B: "running"}
    assert report.standby_lags == {A: 0}
    shown = r.world.context.metrics.snapshot()
    (thread,) = shown["stream-thread-metrics"]
    assert (thread["metrics"]["active-tasks"], thread["metrics"]["standby-updating-tasks"]) == (1, 1)
    (mine,) = [entry for entry in shown["stream-task-metrics"] if entry["tags"]["task-id"] == "0_0"]
    assert (mine["metrics"]["update-total"], mine["metrics"]["standby-records-lag"]) == (2, 0)
    r.rebalance(1)
    assert [e["tags"]["task-id"] for e in r.world.context.metrics.snapshot()["stream-task-metrics"]] == ["0_1"]


# -- losses


def test_a_lost_membership_leaves_standbys_open() -> None:
    r = standby(None, A, active=(1,))
    r.hear(Lost("session timeout"))
    assert r.places == {A: "standby"}


def test_a_fatal_error_of_the_producer_costs_the_active_tasks_and_leaves_standbys_open() -> None:
    world = World()
    put(world, 1, "x")
    r = standby(world, A, active=(1,))
    world.producer.fail("commit", FENCED)
    r.step(ms=100)
    r.step()
    assert r.places == {A: "standby"}
    assert world.member.rejoins[-1].startswith("tasks lost")


def test_a_roll_back_leaves_standbys_where_they_are() -> None:
    r = standby(None, A, active=(1,))
    r.tasks.roll_back()
    assert r.places == {A: "standby", B: "positioning"}


# -- warm-ups


def test_a_warm_up_that_has_caught_up_asks_for_a_rebalance_once() -> None:
    r = Running(World(settings={"acceptable_recovery_lag": 1}).logged("1", "2", "3"))
    r.world.restorer.next.extend([Fetched()] * 3)
    r.rebalance(warmup=frozenset({A}), steps=2)
    assert r.world.member.rejoins == []
    r.step(5)
    assert r.world.member.rejoins == ["warm-up 0_0 has caught up"]


def test_a_standby_that_is_no_warm_up_asks_for_nothing() -> None:
    assert standby().world.member.rejoins == []


def test_a_warm_up_that_is_still_one_after_it_has_asked_waits_longer_each_time() -> None:
    r = Running()
    r.rebalance(warmup=frozenset({A}), steps=3)
    assert len(r.world.member.rejoins) == 1
    r.rebalance(warmup=frozenset({A}), steps=3)
    assert len(r.world.member.rejoins) == 1
    r.step(ms=1_000)
    assert len(r.world.member.rejoins) == 2
    r.rebalance(warmup=frozenset({A}), steps=1, ms=1_000)
    assert len(r.world.member.rejoins) == 2
    r.step(ms=1_000)
    assert len(r.world.member.rejoins) == 3


def test_a_warm_up_that_catches_up_while_the_thread_joins_waits_for_the_assignment() -> None:
    r = Running()
    r.world.requests.holds = True
    r.rebalance(warmup=frozenset({A}))
    r.hear(JoinNeeded("another"))
    r.world.requests.answer()
    r.step(3)
    assert r.world.member.rejoins == []
    r.world.requests.holds = False
    r.assign(0, steps=3)
    assert r.world.member.rejoins == []
    assert r.places == {A: "processing"}
