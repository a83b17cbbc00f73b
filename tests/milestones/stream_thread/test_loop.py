"""The loop as a whole: a round, its waits, its end."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.common.errors import MilestonesError, ProcessingError
from milestones.common.kafka.membership import JoinNeeded
from milestones.common.records import TaskId
from milestones.common.task.task import TaskState
from milestones.instance.context import ThreadReport
from tests.milestones.fakes import FENCED, ILLEGAL_GENERATION, IN, A, Running, World, busy, kafka_error, passing, put


def test_a_record_comes_in_is_counted_sent_and_committed() -> None:
    r = Running(World().fed("a", "b", "c")).run(0)
    r.step(3, ms=100)
    assert [output.topic for _, output in r.world.producer.sent].count("out") == 3
    assert r.world.producer.committed[IN].offset == 3
    assert r.world.state.content(A) == {b"k": (3).to_bytes(8, "big")}


def test_an_idle_thread_waits_for_input_until_the_next_commit_or_poll_ms_whichever_is_sooner() -> None:
    r = Running(poll_ms=50, commit_interval_ms=1_000).run(0)
    r.step(2)
    assert r.world.consumer.waits[-1] == 50
    r.step(ms=r.world.clock.monotonic_ms() + 970)
    assert r.world.consumer.waits[-1] <= 50


def test_a_thread_with_work_does_not_wait() -> None:
    r = Running().run(0)
    r.feed("a", steps=2)
    assert r.world.consumer.waits[-1] == 0


def test_a_thread_whose_tasks_do_not_all_run_waits_ten_ms_at_most() -> None:
    r = Running()
    r.world.state.locked.add(A)
    r.rebalance(0, steps=2)
    assert r.world.consumer.waits[-1] == 10


def test_a_thread_that_joins_the_group_waits_ten_ms_at_most() -> None:
    r = Running().run()
    r.hear(JoinNeeded("a test"), steps=2)
    assert r.world.consumer.waits[-1] == 10


@pytest.mark.parametrize("call", ["send_offsets", "commit"])
def test_an_abortable_error_rolls_back_in_place_and_the_records_are_counted_once(call: str) -> None:
    r = busy(0, commit_interval_ms=100)
    world = r.world
    world.producer.fail(call, ILLEGAL_GENERATION)
    world.commit(IN, 0)
    r.step(10, ms=100)
    assert world.clients.renewed == 0
    assert world.member.rejoins == []
    assert world.state.tasks[A].epoch == 1
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}


@pytest.mark.parametrize("call", ["send", "poll", "flush", "send_offsets", "commit"])
def test_a_fenced_producer_costs_the_tasks_and_a_rejoin_wherever_it_shows(call: str) -> None:
    r = Running().run(0)
    put(r.world, 0, "a", "b")
    r.world.producer.fail(call, FENCED)
    r.step(3, ms=100)
    assert r.world.clients.renewed == 1
    assert r.tasks.owned == frozenset()
    assert r.world.state.tasks[A].state is TaskState.CLOSED
    assert [reason[:10] for reason in r.world.member.rejoins] == ["tasks lost"]
    r.run(0)
    r.step(10, ms=100)
    assert r.world.state.content(A) == {b"k": (2).to_bytes(8, "big")}


def test_user_code_that_fails_ends_the_thread_uncommitted() -> None:
    world = World().fed("a", "fail")
    with pytest.raises(ProcessingError, match="user code"):
        Running(world).run(0).step(5)
    assert "commit" not in world.producer.calls


def test_a_consumer_that_may_not_read_ends_the_thread_instead_of_rejoining_for_ever() -> None:
    r = Running().run(0)
    r.world.consumer.next.append(MilestonesError("the consumer can't read in-0"))
    with pytest.raises(MilestonesError, match="can't read"):
        r.step()
    assert r.world.clients.renewed == 0


def test_an_error_of_recovery_itself_ends_the_thread() -> None:
    r = Running().run(0)
    put(r.world, 0, "a")
    r.world.producer.fail("commit", FENCED)
    r.world.clients.renewal_error = kafka_error(KafkaError._TRANSPORT)
    with pytest.raises(Exception, match="made by a test"):
        r.step(3, ms=100)


def test_a_clean_end_commits_and_closes() -> None:
    r = busy(0)
    r.loop.shut_down(leave_group=True)
    assert r.world.producer.committed[IN].offset == 2
    assert r.world.state.held == set()


@pytest.mark.parametrize("error", [FENCED, ILLEGAL_GENERATION, MilestonesError("any")])
def test_a_clean_end_whose_commit_fails_closes_all_the_same(error: Any, caplog: pytest.LogCaptureFixture) -> None:
    r = busy(0)
    r.world.producer.fail("send_offsets", error)
    r.loop.shut_down(leave_group=True)
    assert r.world.state.held == set()
    assert "the last commit failed" in caplog.text


def test_a_clean_end_in_the_middle_of_a_rebalance_closes_what_waits_restores_and_starts() -> None:
    r = Running(World(passing()))
    r.world.state.locked.add(A)
    r.world.requests.holds = True
    r.rebalance(0, 1)
    r.world.member.holds = True
    r.assign(0, 1, 2)
    r.loop.shut_down(leave_group=True)
    assert r.tasks.owned == frozenset()
    assert r.world.state.held == set()


def test_an_end_by_an_error_commits_nothing() -> None:
    r = busy(0)
    r.loop.fail(shut_application_down=None)
    assert "commit" not in r.world.producer.calls
    assert r.world.state.held == set()
    assert r.world.member.joins[-1].shutdown is None


def test_the_client_is_told_twice_a_second_what_the_thread_has() -> None:
    r = Running()
    r.world.state.locked.add(TaskId(0, 1))
    r.rebalance(0, 1)
    r.feed("a", steps=10, ms=100)
    reports = [event for event in r.world.events if isinstance(event, ThreadReport)]
    assert 2 <= len(reports) <= 4
    assert reports[-1].tasks == {A: "running", TaskId(0, 1): "restoring"}
    assert reports[-1].places == {A: "processing", TaskId(0, 1): "waiting for its lock"}
    assert (reports[-1].records, reports[-1].generation, reports[-1].lags) == (1, 1, {IN: 0})
