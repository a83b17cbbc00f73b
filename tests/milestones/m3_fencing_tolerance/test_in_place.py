"""A whole stream loop whose producer dies: what stays as it was, and what it costs."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from milestones.common.errors import TransactionalIdError
from milestones.common.kafka.membership import Lost, StaleGenerationError
from milestones.common.task.lifecycle import TaskState
from tests.milestones.fakes import FENCED, TIMED_OUT, A, Running, kafka_error, put
from tests.milestones.m3_fencing_tolerance.tolerant import IN, TolerantWorld, numbered, unready
from tests.milestones.stream_thread.test_metrics import of


@pytest.mark.parametrize("call", ["send", "poll", "flush", "send_offsets", "commit"])
def test_a_dead_producer_costs_neither_tasks_nor_stores_nor_a_rebalance_wherever_it_shows(call: str) -> None:
    world = TolerantWorld()
    world.commit(IN, 0)
    r = Running(world).run(0)
    put(world, 0, "a", "b")
    world.producer.fail(call, FENCED)
    r.step(6, ms=100)
    assert world.clients.renewed == 1
    assert world.state.tasks[A].epoch == 1
    assert world.state.opens == 1
    assert world.member.rejoins == []
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}
    assert world.producer.committed[IN].offset == 2


def test_a_commit_that_was_made_without_an_answer_rolls_nothing_back() -> None:
    world = TolerantWorld()
    r = Running(world).run(0)
    put(world, 0, "a", "b")

    def commit(timeout_ms: int) -> None:
        world.member.committed.update(world.producer.offsets)
        raise FENCED

    world.producer.commit = commit  # type: ignore[method-assign]
    r.step(3, ms=100)
    assert world.clients.renewed == 1
    assert world.state.tasks[A].epoch == 0
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}
    assert world.state.offset(A) == 2


def test_a_member_that_the_group_has_given_up_closes_its_tasks_and_rejoins() -> None:
    world = TolerantWorld()
    r = Running(world).run(0)
    put(world, 0, "a")
    world.producer.fail("commit", FENCED)
    world.member.answer_error = StaleGenerationError("removed")
    r.step(2, ms=100)
    assert r.tasks.owned == frozenset()
    assert world.state.tasks[A].state is TaskState.CLOSED
    world.member.events.append(Lost("removed"))
    world.member.answer_error = None
    r.run(0)
    r.step(6, ms=100)
    assert world.state.content(A) == {b"k": (1).to_bytes(8, "big")}


@pytest.mark.parametrize("why", ["a broken connection", "an abort without an answer"])
def test_a_lost_membership_costs_no_long_wait_for_a_new_producer_and_is_no_lost_transaction(why: str) -> None:
    world = TolerantWorld(settings={"commit_interval_ms": 5_000})
    r = Running(world).run(0)
    put(world, 0, "a")
    r.step(2)
    old = world.producer
    assert old.in_transaction
    old.disconnected = why == "a broken connection"
    if not old.disconnected:
        old.fail("abort", TIMED_OUT)
    world.member.metadata_error = StaleGenerationError("this member has no generation")
    world.member.events.append(Lost("no answer for a session"))
    r.step()
    assert "abort" in old.calls
    assert r.tasks.owned == frozenset()
    assert (world.clients.renewed, world.clients.within_ms) == (1, world.config.heartbeat_interval_ms)
    assert r.loop._recoveries._recovery.lost == 0


def test_others_that_have_committed_since_keep_what_they_committed() -> None:
    world = TolerantWorld()
    r = Running(world).run(0)
    put(world, 0, "a")
    world.producer.fail("commit", FENCED)
    world.member.committed[IN] = numbered(1, 7, "other")
    r.step(2, ms=100)
    assert world.member.committed[IN] == numbered(1, 7, "other")
    assert world.state.content(A) == {}
    assert [reason[:10] for reason in world.member.rejoins] == ["tasks lost"]


def test_a_right_that_is_taken_away_while_a_commit_ends_ends_the_thread_with_what_to_grant() -> None:
    world = TolerantWorld()
    r = Running(world).run(0)
    put(world, 0, "a")
    refused = kafka_error(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True)
    world.producer.fail("commit", refused)
    world.clients.renewal_error = unready(refused)
    with pytest.raises(TransactionalIdError, match="grant the user"):
        r.step(2, ms=100)
    assert world.member.rejoins == []


def test_an_id_that_is_taken_over_again_and_again_is_told_also_when_others_have_committed_each_time() -> None:
    world = TolerantWorld()
    r = Running(world).run(0)

    def lose(times: int) -> None:
        put(world, 0, "a")
        world.producer.fail("commit", FENCED)
        world.member.committed[IN] = numbered(times, 10 * times, "other")
        r.step(2, ms=100)

    for times in (1, 2):
        lose(times)
        assert len(world.member.rejoins) == times
        r.run(0)
    with pytest.raises(TransactionalIdError, match=r"app-tx.*state_dir"):
        lose(3)


def test_metrics_tell_what_happened_and_what_it_cost() -> None:
    world = TolerantWorld(settings={"transaction_timeout_ms": 1_000})
    world.commit(IN, 0)
    r = Running(world).run(0)
    put(world, 0, "a", "b", "c")
    world.producer.fail("commit", FENCED)
    world.producer.age = 1_500
    r.step(6, ms=100)
    thread = of(r, "stream-thread-metrics")
    assert (thread["producer-fenced-total"], thread["producer-recovered-total"]) == (1, 1)
    assert (thread["producer-lost-total"], thread["rolled-back-total"]) == (0, 1)
    assert thread["rolled-back-records-total"] == 3
    assert thread["rolled-back-ms-total"] > 0


def test_the_age_of_open_transactions_is_shown() -> None:
    world = TolerantWorld(settings={"commit_interval_ms": 5_000, "transaction_timeout_ms": 60_000})
    r = Running(world).run(0)
    put(world, 0, "a")
    world.producer.age = 700
    r.step(2)
    assert of(r, "stream-thread-metrics")["transaction-age-ms-max"] == 700


def test_a_task_that_is_rolled_back_before_its_first_commit_loses_nothing_whatever_the_reset_policy() -> None:
    world = TolerantWorld(settings={"auto_offset_reset": "latest"}).fed("before the start")
    r = Running(world).run(0)
    put(world, 0, "a", "b")
    world.producer.fail("send", FENCED)
    r.step(6, ms=100)
    assert world.clients.renewed == 1
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}
    assert world.producer.committed[IN].offset == 3
