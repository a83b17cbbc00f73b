"""Standbys of a stream thread, and tasks that change their role with their stores open."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Message

from milestones.common.errors import KafkaUnreachableError, MembershipError, StateCorruptError, StateError
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import JoinNeeded, Lost
from milestones.common.records import Output, TaskId, TopicPartition
from milestones.common.task.task import State
from milestones.context import ThreadReport
from milestones.housekeeper import Bounds
from tests.milestones.baseline.test_restoration import source_table
from tests.milestones.baseline.test_tasks import places
from tests.milestones.fakes import (
    CHANGELOG,
    FENCED,
    ILLEGAL_GENERATION,
    Counting,
    Running,
    World,
    counting,
    passing,
    put,
)

A, B = TaskId(0, 0), TaskId(0, 1)
IN, LOG, LOG_B = TopicPartition("in", 0), TopicPartition(CHANGELOG, 0), TopicPartition(CHANGELOG, 1)


def standby(world: World | None = None, *tasks: TaskId, active: tuple[int, ...] = (), **kinds: Any) -> Running:
    """A thread with these tasks as standbys, some rounds later."""
    r = Running(world)
    r.rebalance(*active, **{"standby": frozenset(tasks or {A}), **kinds})
    r.step(5)
    return r


def content(r: Running, task: TaskId = A, store: str = "counts") -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in r.world.state.content(task, store).items()}


def writing(world: World) -> World:
    """The world, with a producer whose outputs are in the logs; nobody reads aborted ones."""
    send, commit, abort = world.producer.send, world.producer.commit, world.producer.abort
    pending: list[tuple[TopicPartition, int]] = []

    def written(task: TaskId, outputs: Any, changelogs: Any = (), **rest: Any) -> None:
        outputs = [Output(*output) for output in outputs]
        send(task, outputs, changelogs, **rest)
        for output in outputs:
            at = TopicPartition(output.topic, output.partition)
            log = world.logs[at]
            message = Message(
                topic=at.topic, partition=at.partition, offset=log.end, key=output.key, value=output.value,
                timestamp=(1, output.timestamp),
            )  # fmt: skip
            pending.append((at, len(log.entries)))
            log.entries.append(message)

    def committed(timeout_ms: int) -> None:
        commit(timeout_ms)
        pending.clear()

    def aborted(timeout_ms: int) -> None:
        abort(timeout_ms)
        for at, index in pending:
            world.logs[at].entries[index] = None

    world.producer.send, world.producer.commit, world.producer.abort = written, committed, aborted  # type: ignore[method-assign]
    return world


def stores_of(task: Any) -> Any:
    return task._stores.state.stores


# -- following


def test_a_standby_has_what_its_changelog_has_and_goes_on_reading_it() -> None:
    world = World()
    world.logs[LOG].add("1", key="a").control()
    r = standby(world)
    assert content(r) == {"a": "1"}
    assert world.state.offset(A) == 2
    world.logs[LOG].add("2", key="b").add("3", key="a").control()
    r.step(2)
    assert content(r) == {"a": "3", "b": "2"}
    assert world.state.offset(A) == 5
    assert places(r.tasks) == {A: "standbys"}


def test_a_thread_with_nothing_but_standbys_is_running() -> None:
    world = World()
    world.requests.holds = True
    r = standby(world)
    assert r.tasks.all_running
    assert world.states[-1].value == "RUNNING"


def test_a_standby_waits_for_its_directory_and_keeps_nobody_from_running() -> None:
    world = World()
    world.state.locked.add(A)
    r = standby(world, A, active=(1,))
    assert places(r.tasks) == {A: "waiting", B: "processing"}
    assert r.tasks.all_running
    world.state.locked.clear()
    r.step(2)
    assert places(r.tasks) == {A: "standbys", B: "processing"}


def test_a_standby_that_goes_away_is_closed_and_nothing_of_it_is_read_any_more() -> None:
    r = standby()
    r.rebalance()
    assert r.world.state.standbys[A].state is State.CLOSED
    assert r.world.state.held == set()
    assert r.world.restorer.assigned == frozenset()


def test_a_standby_that_stays_is_not_touched_by_a_rebalance() -> None:
    r = standby()
    before, moves = r.world.state.standbys[A], len(r.world.restorer.moves)
    r.rebalance(1, warmup=frozenset({A}))
    r.step(3)
    assert r.world.state.standbys[A] is before
    assert [move for move in r.world.restorer.moves[moves:] if LOG in move] == []


def test_a_standby_whose_changelog_was_truncated_past_it_is_rebuilt() -> None:
    world = World()
    world.logs[LOG].add("1", key="a")
    r = standby(world)
    world.logs[LOG].control(9).add("2", key="new")
    world.logs[LOG].cut_to(5)
    r.step(5)
    assert content(r) == {"new": "2"}
    assert world.state.offset(A) == 11


def test_a_standby_notices_by_itself_that_its_changelog_was_made_anew_and_is_as_long_again() -> None:
    world = World()
    world.requests.topic_ids = {CHANGELOG: "first"}
    world.logs[LOG].add("1", key="a")
    r = standby(world)
    del world.logs[LOG]
    world.logs[LOG].add("7").add("8", key="new")
    world.requests.topic_ids = {CHANGELOG: "second"}
    r.step(ms=60_000)
    r.step(5)
    assert content(r) == {"k": "7", "new": "8"}
    assert world.state.changelog_ids[A] == {"counts": "second"}


def test_a_standby_that_stays_the_same_for_long_is_asked_about_and_not_read_anew() -> None:
    world = World()
    world.requests.topic_ids = {CHANGELOG: "first"}
    world.logs[LOG].add("1", key="a")
    r = standby(world)
    moves = len(world.restorer.moves)
    world.requests.holds = True
    r.step(ms=60_000)
    world.logs[LOG].add("2", key="b")
    r.step(2)
    assert len(world.requests.questions) == 1
    world.requests.answer()
    r.step(2)
    assert len(world.restorer.moves) == moves
    assert content(r) == {"a": "1", "b": "2"}


def test_the_answer_to_a_question_from_before_does_not_make_a_standby_seem_ahead_of_its_changelog() -> None:
    world = World()
    world.logs[LOG].add("1", key="a")
    r = standby(world)
    world.requests.holds = True
    r.step(ms=60_000)
    (old,) = world.requests.questions
    world.requests.questions.clear()
    old_bounds = world.logs.bounds([LOG])
    world.logs[LOG].add("2", key="b")
    r.step()
    world.restorer.next.append(Fetched(out_of_range=[LOG]))
    r.step()
    old.reply_to.try_put(Bounds(A, old_bounds))
    r.step()
    world.requests.holds = False
    world.requests.answer()
    r.step(3)
    assert world.state.offset(A) == 2
    assert world.state.opens == 1
    assert content(r) == {"a": "1", "b": "2"}


def test_a_standby_whose_changelog_is_deleted_waits_for_a_new_one_and_the_thread_goes_on() -> None:
    world = World()
    put(world, 1, "x")
    r = standby(world, A, active=(1,))
    world.restorer.next.append(Fetched(gone=[LOG]))
    world.requests.error = KafkaUnreachableError("no such topic")
    r.step(5, ms=1_000)
    put(world, 1, "y")
    r.step(3)
    assert r.loop._processing.processed == 2
    world.requests.error = None
    world.logs[LOG].add("1", key="new")
    r.step(4, ms=1_000)
    assert content(r) == {"new": "1"}


def test_a_standby_is_asked_about_again_once_a_second_at_most_while_kafka_does_not_answer() -> None:
    world = World()
    world.requests.error = KafkaUnreachableError("no broker")
    asked: list[Any] = []
    put_before = world.requests.put
    world.requests.put = lambda question, timeout_ms: (asked.append(question), put_before(question, timeout_ms))  # type: ignore[method-assign,assign,return-value,func-returns-value]
    r = standby(world)
    r.step(20, ms=100)
    assert len(asked) <= 4


def test_a_damaged_store_of_a_standby_is_set_aside_and_restored_and_the_thread_goes_on() -> None:
    world = World()
    world.logs[LOG].add("1", key="a")
    r = standby(world)
    engine = world.state.engines[A]["counts"]
    def damaged(*_: Any) -> None:
        raise StateCorruptError("bad block", "counts")
    engine.apply = damaged  # type: ignore[method-assign]
    world.logs[LOG].add("2", key="b")
    r.step(4)
    assert world.state.engines[A]["counts"] is not engine
    assert content(r) == {"a": "1", "b": "2"}
    assert world.state.offset(A) == 2


def test_a_damaged_store_is_not_taken_for_complete_by_the_end_that_came_with_the_damaged_batch() -> None:
    world = World()
    world.logs[LOG].add("1", key="a")
    r = Running(world)
    world.restorer.next.append(Fetched())
    r.rebalance(0)
    while A not in r.loop._restoration._active:  # type: ignore[attr-defined]
        r.step()
    engine = world.state.engines[A]["counts"]
    def damaged(*_: Any) -> None:
        raise StateCorruptError("bad block", "counts")
    engine.apply = damaged  # type: ignore[method-assign]
    r.step(8)
    assert places(r.tasks) == {A: "processing"}
    assert content(r) == {"a": "1"}


def test_a_paused_subtopologys_standbys_and_restorations_stand_still_and_go_on_when_resumed() -> None:
    world = World()
    world.logs[LOG].add("1", key="a")
    world.logs[LOG_B].add("1", key="b")
    r = Running(world)
    world.context.live.pause({0})
    r.rebalance(1, standby=frozenset({A}))
    r.step(5)
    assert world.restorer.assigned == frozenset()
    assert places(r.tasks) == {A: "standbys", B: "restoring"}
    world.context.live.resume({0})
    r.step(5)
    assert content(r) == {"a": "1"}
    assert places(r.tasks) == {A: "standbys", B: "processing"}


def test_while_an_active_task_has_much_to_restore_standbys_get_a_fifth_of_the_time() -> None:
    world = World()
    r = standby(world, A)
    world.logs[LOG_B].add(*"x" * 200_000)
    world.logs[LOG].add("1", key="a")
    world.restorer.next.extend([Fetched()] * 100)
    r.rebalance(1, standby=frozenset({A}))
    r.step(3)
    reading = []
    for _ in range(50):
        r.step(ms=100)
        reading.append(LOG in world.restorer.assigned)
    assert 5 <= reading.count(True) <= 15
    assert sum(a != b for a, b in pairwise(reading)) <= 2


def test_an_active_task_with_little_to_restore_takes_no_prefetched_records_from_standbys() -> None:
    world = World()
    r = standby(world, A)
    moves = len(world.restorer.moves)
    world.logs[LOG_B].add(*"xyz")
    r.rebalance(1, standby=frozenset({A}))
    r.step(5)
    assert [move for move in world.restorer.moves[moves:] if LOG in move] == []


# -- a source topic as changelog


def test_a_standby_reads_a_source_topic_only_as_far_as_the_group_has_committed() -> None:
    world = World(source_table())
    world.logs[IN].add("1", key="a").add("2", key="b").add("3", key="c")
    world.commit(IN, 2)
    r = standby(world)
    assert content(r, store="table") == {"a": "1", "b": "2"}
    assert world.state.offset(A, "table") == 2
    world.commit(IN, 3)
    r.step(3, ms=1_000)
    assert content(r, store="table") == {"a": "1", "b": "2", "c": "3"}


def test_a_standby_of_a_source_topic_that_nobody_has_committed_reads_nothing() -> None:
    world = World(source_table())
    world.logs[IN].add("1", key="a")
    r = standby(world)
    assert content(r, store="table") == {}
    assert r.tasks.lags() == {A: 0}


def test_a_standby_of_a_source_topic_does_not_say_how_far_it_is_before_it_knows_what_is_committed() -> None:
    world = World(source_table())
    world.member.holds = True
    r = standby(world)
    assert r.tasks.lags() == {}


def test_a_lost_membership_delays_what_a_standby_may_read_and_no_more() -> None:
    world = World(source_table())
    world.logs[IN].add("1", key="a")
    world.commit(IN, 1)
    world.member.holds = True
    r = standby(world)
    world.member.answer(error=MembershipError("lost"))
    world.member.holds = False
    r.step(4, ms=1_000)
    assert content(r, store="table") == {"a": "1"}


# -- lags, positions, reports


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
    world = World()
    world.logs[LOG].add("1", "2", "3")
    world.state.closed = {TaskId(0, 7): 5, TaskId(0, 8): 6}
    r = standby(world, A, active=(1,))
    world.member.events.append(JoinNeeded("a test"))
    r.step()
    said = world.member.joins[-1]
    assert (said.active, said.standby, said.reason) == ({B}, {A}, "a test")
    assert said.positions == {A: 3, TaskId(0, 7): 5, TaskId(0, 8): 6}


def test_an_active_task_that_is_not_restored_yet_tells_how_far_it_is() -> None:
    world = World()
    world.logs[LOG].add(*"1234")
    world.state.closed = {B: 2}
    world.requests.holds = world.member.holds = True
    r = Running(world)
    r.rebalance(0, 1)
    world.state.locked.add(B)
    world.member.answer()
    r.step()
    world.requests.answer()
    world.restorer.next.append(Fetched(records={LOG: world.logs[LOG].entries[:3]}))  # type: ignore[dict-item]
    r.step()
    assert r.tasks.positions()[A] == 3


def test_a_task_that_was_assigned_and_not_opened_yet_is_as_far_as_what_lies_on_the_disk() -> None:
    world = World()
    world.state.closed = {A: 2}
    r = Running(world)
    r.tasks.assign({A: [IN], B: [TopicPartition("in", 1)]})
    assert r.tasks.positions() == {A: 2, B: 0}


def test_only_the_thread_with_the_lowest_number_tells_what_lies_on_the_disk() -> None:
    world = World()
    world.state.closed = {A: 2}
    r = Running(world)
    assert r.tasks.positions() == {A: 2}
    world.context.live.add()
    world.context.live.remove(1)
    assert r.tasks.positions() == {}


def test_stateless_tasks_have_no_position() -> None:
    r = Running(World(passing()))
    r.tasks.assign({A: [IN]})
    assert r.tasks.positions() == {}


def test_reports_and_metrics_show_standbys() -> None:
    world = World()
    world.logs[LOG].add("1", "2")
    r = standby(world, A, active=(1,))
    r.step(ms=1_000)
    report = next(event for event in reversed(world.events) if isinstance(event, ThreadReport))
    assert report.tasks == {A: "standby", B: "running"}
    assert report.standby_lags == {A: 0}
    shown = world.context.metrics.snapshot()
    (thread,) = shown["stream-thread-metrics"]
    assert (thread["metrics"]["active-tasks"], thread["metrics"]["standby-updating-tasks"]) == (1, 1)
    (mine,) = [entry for entry in shown["stream-task-metrics"] if entry["tags"]["task-id"] == "0_0"]
    assert (mine["metrics"]["update-total"], mine["metrics"]["standby-records-lag"]) == (2, 0)
    r.rebalance(1)
    assert [e["tags"]["task-id"] for e in world.context.metrics.snapshot()["stream-task-metrics"]] == ["0_1"]


# -- recycling


def test_a_standby_becomes_active_with_its_stores_open_and_restores_the_tail_only() -> None:
    world = World()
    world.logs[LOG].add(*"123", key="a")
    r = standby(world)
    stores = stores_of(world.state.standbys[A])
    world.logs[LOG].add("4", key="a").control()
    world.restorer.next.append(Fetched())
    r.rebalance(0)
    r.step(5)
    assert places(r.tasks) == {A: "processing"}
    assert stores_of(world.state.tasks[A]) is stores
    assert (world.state.opens, world.state.tasks[A].work.restored) == (1, 1)
    assert world.state.standbys[A].state is State.CLOSED
    assert content(r) == {"a": "4"}


def test_a_standby_that_has_all_becomes_active_without_reading_a_record() -> None:
    world = World()
    world.logs[LOG].add(*"123").control()
    r = standby(world)
    moves = len(world.restorer.moves)
    r.rebalance(0)
    r.step(3)
    assert places(r.tasks) == {A: "processing"}
    assert world.restorer.moves[moves:] == []


def test_an_active_task_becomes_a_standby_after_a_commit_with_its_stores_open() -> None:
    world = writing(World(settings={"commit_interval_ms": 10_000}))
    put(world, 0, "x", "y")
    r = Running(world).run(0)
    r.step(2)
    stores = stores_of(world.state.tasks[A])
    r.rebalance(standby=frozenset({A}))
    assert world.producer.committed[IN].offset == 2
    r.step(3)
    assert places(r.tasks) == {A: "standbys"}
    assert stores_of(world.state.standbys[A]) is stores
    assert world.state.opens == 1
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}
    assert world.member.rejoins == ["tasks were released to their new owners"]
    assert world.state.standbys[A].work.restored == 0


def test_there_and_back_again_the_stores_stay_open_and_nothing_is_restored() -> None:
    world = writing(World())
    put(world, 0, "x", "y")
    r = Running(world).run(0)
    r.step(3)
    for number in range(3):
        r.rebalance(standby=frozenset({A}))
        world.commit(IN, world.producer.committed[IN].offset)
        r.step(3)
        r.run(0)
        put(world, 0, f"round {number}")
        r.step(3)
    assert world.state.opens == 1
    assert world.state.tasks[A].work.restored == 0
    r.step(3, ms=100)
    assert world.state.content(A) == {b"k": (5).to_bytes(8, "big")}


@pytest.mark.parametrize("place", ["waiting", "positioning", "restoring"])
def test_an_active_task_that_does_not_run_yet_becomes_a_standby_from_wherever_it_is(place: str) -> None:
    world = World()
    world.logs[LOG].add(*"123")
    if place == "waiting":
        world.state.locked.add(A)
    world.member.holds, world.requests.holds = place == "positioning", place == "restoring"
    r = Running(world)
    r.rebalance(0)
    r.step()
    assert places(r.tasks) == {A: place}
    r.rebalance(standby=frozenset({A}))
    world.member.holds = world.requests.holds = False
    world.member.answer()
    world.requests.answer()
    world.state.locked.clear()
    r.step(4)
    assert places(r.tasks) == {A: "standbys"}
    assert world.state.opens == 1
    assert world.state.offset(A) == 3


def test_a_task_that_is_starting_becomes_a_standby() -> None:
    world = World()
    world.requests.holds = True
    r = Running(world)
    r.rebalance(0)
    r.step()
    world.requests.answer()
    r.step(2)
    assert places(r.tasks) == {A: "starting"}
    r.rebalance(standby=frozenset({A}))
    world.requests.holds = False
    world.requests.answer()
    r.step(2)
    assert places(r.tasks) == {A: "standbys"}
    assert world.consumer.assigned == frozenset()


def test_stores_that_wait_for_their_other_role_are_closed_when_that_goes_away() -> None:
    r = standby()
    r.tasks.assign({A: [IN]})
    assert r.tasks._waiting[A].opened is not None
    r.tasks.assign({})
    assert r.world.state.held == set()
    assert places(r.tasks) == {}


def test_stores_that_wait_for_their_other_role_can_go_back_to_their_former_one() -> None:
    r = standby()
    r.tasks.assign({A: [IN]})
    r.tasks.assign({}, {A})
    r.step(2)
    assert places(r.tasks) == {A: "standbys"}
    assert r.world.state.opens == 1


@pytest.mark.parametrize("end", ["shut_down", "fail"])
def test_at_the_end_of_a_thread_standbys_and_stores_between_two_roles_are_closed(end: str) -> None:
    r = standby(None, A, B)
    r.tasks.assign({A: [IN]}, {B})
    assert r.world.state.held == {A, B}
    r.loop.shut_down(leave_group=True) if end == "shut_down" else r.loop.fail(shut_application_down=None)
    assert r.world.state.held == set()
    assert places(r.tasks) == {}


class FailsToClose(Counting):
    close_error = ValueError("user's close")


def test_a_processor_that_fails_to_close_while_its_task_is_recycled_ends_the_thread_with_nothing_left_open() -> None:
    world = World(counting(processor=FailsToClose))
    r = Running(world).run(0)
    with pytest.raises(ValueError, match="user's close"):
        r.rebalance(standby=frozenset({A}))
    r.loop.fail(shut_application_down=None)
    assert world.state.held == set()


def test_stores_that_cannot_be_opened_in_their_new_role_are_closed() -> None:
    r = standby()
    r.world.state.errors[A] = StateError("the disk is full")
    with pytest.raises(StateError, match="disk is full"):
        r.rebalance(0)
    assert r.world.state.held == set()


def test_a_rolled_back_task_becomes_a_standby_without_what_was_not_committed() -> None:
    world = World(settings={"commit_interval_ms": 10_000})
    put(world, 0, "x", "y")
    r = Running(world).run(0)
    r.step(2)
    r.tasks.roll_back()
    r.rebalance(standby=frozenset({A}))
    r.step(2)
    assert places(r.tasks) == {A: "standbys"}
    assert world.state.content(A) == {}
    assert world.state.opens == 1


def test_when_the_commit_before_recycling_fails_in_place_the_standby_has_committed_data_only() -> None:
    world = writing(World(settings={"commit_interval_ms": 10_000}))
    put(world, 0, "x", "y")
    r = Running(world).run(0)
    r.step(2)
    r.assign(standby=frozenset({A}))
    assert world.producer.committed[IN].offset == 2
    world.commit(IN, 2)
    r.run(0)
    put(world, 0, "z")
    r.step(2)
    world.producer.fail("send_offsets", ILLEGAL_GENERATION)
    r.assign(standby=frozenset({A}))
    r.step(2)
    assert places(r.tasks) == {A: "standbys"}
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}


# -- losses


def test_a_lost_membership_leaves_standbys_open() -> None:
    r = standby(None, A, active=(1,))
    r.world.member.events.append(Lost("session timeout"))
    r.step()
    assert places(r.tasks) == {A: "standbys"}


def test_a_fatal_error_of_the_producer_costs_the_active_tasks_and_leaves_standbys_open() -> None:
    world = World()
    put(world, 1, "x")
    r = standby(world, A, active=(1,))
    world.producer.fail("commit", FENCED)
    r.step(ms=100)
    assert places(r.tasks) == {A: "standbys"}
    assert world.member.rejoins[-1].startswith("tasks lost")


def test_a_roll_back_leaves_standbys_where_they_are() -> None:
    r = standby(None, A, active=(1,))
    r.tasks.roll_back()
    assert places(r.tasks) == {A: "standbys", B: "positioning"}


# -- warm-ups


def test_a_warm_up_that_has_caught_up_asks_for_a_rebalance_once() -> None:
    world = World(settings={"acceptable_recovery_lag": 1})
    world.logs[LOG].add("1", "2", "3")
    world.restorer.next.extend([Fetched()] * 3)
    r = Running(world)
    r.rebalance(warmup=frozenset({A}))
    r.step(2)
    assert world.member.rejoins == []
    r.step(5)
    assert world.member.rejoins == ["warm-up 0_0 has caught up"]


def test_a_standby_that_is_no_warm_up_asks_for_nothing() -> None:
    assert standby().world.member.rejoins == []


def test_a_warm_up_that_is_still_one_after_it_has_asked_waits_longer_each_time() -> None:
    r = Running()
    r.rebalance(warmup=frozenset({A}))
    r.step(3)
    assert len(r.world.member.rejoins) == 1
    r.rebalance(warmup=frozenset({A}))
    r.step(3)
    assert len(r.world.member.rejoins) == 1
    r.step(ms=1_000)
    assert len(r.world.member.rejoins) == 2
    r.rebalance(warmup=frozenset({A}))
    r.step(ms=1_000)
    assert len(r.world.member.rejoins) == 2
    r.step(ms=1_000)
    assert len(r.world.member.rejoins) == 3


def test_a_warm_up_that_catches_up_while_the_thread_joins_waits_for_the_assignment() -> None:
    world = World()
    r = Running(world)
    world.requests.holds = True
    r.rebalance(warmup=frozenset({A}))
    world.member.events.append(JoinNeeded("another"))
    r.step()
    world.requests.answer()
    r.step(3)
    assert world.member.rejoins == []
    world.requests.holds = False
    r.assign(0)
    r.step(3)
    assert world.member.rejoins == []
    assert places(r.tasks) == {A: "processing"}
