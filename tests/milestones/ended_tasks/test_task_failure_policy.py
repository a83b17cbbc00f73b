"""What is one task's failure ends that task: the others go on."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.common.errors import (
    OffsetsRefusedError,
    OwnershipError,
    ProductionError,
    StateCorruptError,
    StateError,
)
from milestones.common.kafka.refusals import Refused
from milestones.common.records import Output, Record, StoreId, TopicPartition
from milestones.instance.context import UncaughtExceptionResponse
from milestones.parts import DecidedError
from tests.milestones.fakes import CHANGELOG, A, B, put
from tests.milestones.m4_polling_thread.polling import RunningPolling

TIMEOUT_MS = 1_000


def failing(*, decision: UncaughtExceptionResponse | None = None, **settings: Any) -> RunningPolling:
    """Two tasks; user code refuses "bad", which is third of four in the first one's input."""
    r = RunningPolling(task_timeout_ms=TIMEOUT_MS, commit_interval_ms=100, num_processing_threads=2, **settings)
    r.world.decision = decision
    r.world.user_code.refused = {"bad"}
    r.run(0, 1)
    put(r.world, 0, "a", "b", "bad", "c")
    r.step(4, ms=100)
    return r


def ended(r: RunningPolling) -> RunningPolling:
    """Its failure is final, and the task is closed."""
    for _ in range(200):
        if r.places.get(A) == "ended":
            return r
        r.step(ms=100)
    raise AssertionError(r.places)


def committed(r: RunningPolling, partition: int) -> int:
    return r.world.member.committed[TopicPartition("in", partition)].offset


def test_a_task_that_fails_for_too_long_ends_at_its_record_with_all_before_it_committed() -> None:
    r = ended(failing())
    assert committed(r, 0) == 2
    assert r.world.written(0) == [("k", 1), ("k", 2)]
    assert r.tasks.owned == {A, B}
    assert "user code refuses bad" in r.tasks.ended[A]
    assert A not in r.world.state.held
    put(r.world, 1, "x", "y")
    r.step(6, ms=100)
    assert committed(r, 1) == 2
    assert r.tasks.roll_backs.count == 0


def test_the_handler_is_asked_once_about_each_end_and_the_thread_is_running() -> None:
    r = ended(failing())
    r.step(30, ms=1_000)
    assert [str(error)[:7] for error in r.world.asked] == ["task 0_"]
    assert r.tasks.all_running
    assert r.places == {A: "ended", B: "processing"}


def test_with_replace_thread_the_task_is_opened_anew_and_goes_on_once_the_cause_is_mended() -> None:
    r = ended(failing(decision=UncaughtExceptionResponse.REPLACE_THREAD))
    r.world.user_code.refused = set()
    r.step(30, ms=100)
    assert r.places[A] == "processing"
    assert committed(r, 0) == 4
    assert r.tasks.ended == {}


def test_a_task_that_is_opened_anew_and_fails_again_ends_again() -> None:
    r = ended(failing(decision=UncaughtExceptionResponse.REPLACE_THREAD))
    r.step(15, ms=100)
    assert r.places[A] == "processing"
    ended(r)
    assert len(r.world.asked) == 2
    assert committed(r, 0) == 2


@pytest.mark.parametrize(
    "decision", [UncaughtExceptionResponse.SHUTDOWN_CLIENT, UncaughtExceptionResponse.SHUTDOWN_APPLICATION]
)
def test_a_handler_may_end_more_than_the_task(decision: UncaughtExceptionResponse) -> None:
    r = failing(decision=decision)
    with pytest.raises(DecidedError, match="user code refuses bad") as raised:
        r.step(200, ms=100)
    assert raised.value.decision is decision
    assert raised.value.error is r.world.asked[0]


def test_an_ended_task_that_moves_away_is_forgotten_and_tried_anew_when_it_comes_back() -> None:
    r = ended(failing())
    r.rebalance(1, steps=3)
    assert A not in r.tasks.places()
    assert r.tasks.ended == {}
    r.world.user_code.refused = set()
    r.rebalance(0, 1, steps=20, ms=100)
    assert committed(r, 0) == 4


def test_a_rebalance_leaves_an_ended_task_alone() -> None:
    r = ended(failing())
    r.rebalance(0, 1, steps=10)
    assert r.places == {A: "ended", B: "processing"}
    assert len(r.world.asked) == 1


def test_a_store_that_cant_be_opened_ends_its_task_only() -> None:
    r = RunningPolling(commit_interval_ms=100)
    r.world.state.errors[A] = StateError("disk full")
    r.rebalance(0, 1)
    put(r.world, 1, "x")
    ended(r).step(5, ms=100)
    assert committed(r, 1) == 1
    assert r.tasks.ended == {A: "disk full"}


def test_a_task_whose_init_fails_ends_at_once() -> None:
    r = RunningPolling(commit_interval_ms=100)
    r.rebalance(0, 1)
    for _ in range(20):
        if A in r.tasks.processing:
            break
        r.step()

    def broken() -> None:
        raise ValueError("no connection")

    r.tasks.processing[A].initialise = broken
    put(r.world, 1, "x")
    ended(r).step(5, ms=100)
    assert committed(r, 1) == 1


def test_an_output_that_kafka_refuses_at_least_once_ends_its_task_without_a_roll_back_of_the_others() -> None:
    r = RunningPolling(commit_interval_ms=100, processing_guarantee="at_least_once")
    r.run(0, 1)
    put(r.world, 0, "a")
    put(r.world, 1, "x")
    output = Output("out", -1, b"k", b"v", 0, [], None)
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    r.step(1)
    r.world.clients.producer.refused.append(Refused(A, refused, output, sent=True))
    ended(r).step(10, ms=100)
    assert TopicPartition("in", 0) not in r.world.member.committed
    assert committed(r, 1) == 1
    assert r.tasks.roll_backs.count == 0


@pytest.mark.parametrize("late", [False, True], ids=["all at once", "one after the other"])
def test_many_outputs_that_kafka_refuses_of_one_task_at_least_once_hold_up_one_commit_of_the_others(late: bool) -> None:
    r = RunningPolling(commit_interval_ms=1_000, processing_guarantee="at_least_once")
    r.run(0, 1)
    put(r.world, 0, "a")
    put(r.world, 1, "x")
    error, producer = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), r.world.clients.producer
    outputs = [Output("out", -1, b"k", b"%d" % number, 0, [], None) for number in range(20)]
    refused = [Refused(A, error, output, sent=True) for output in outputs]
    r.step(1)
    producer.refused += refused if not late else refused[:1]
    ended(r)
    for one in refused[1:] if late else ():
        producer.refused.append(one)
        r.step(ms=100)
    r.step(5, ms=100)
    assert committed(r, 1) == 1


def test_an_output_that_the_client_refuses_exactly_once_ends_its_task_and_rolls_the_others_back_once() -> None:
    r = RunningPolling(commit_interval_ms=100)
    r.run(0, 1)
    put(r.world, 0, "a")
    put(r.world, 1, "x")
    r.step(2)
    output = Output("out", -1, b"k", b"v", 0, [], None)
    r.world.clients.producer.refused.append(Refused(A, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), output))
    ended(r).step(20, ms=100)
    assert TopicPartition("in", 0) not in r.world.member.committed
    assert committed(r, 1) == 1
    assert r.tasks.roll_backs.count == 1


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_damaged_store_is_rebuilt_in_place_and_each_other_task_is_rolled_back_once(guarantee: str) -> None:
    r = RunningPolling(num_processing_threads=2, commit_interval_ms=100, processing_guarantee=guarantee)
    r.run(0, 1)
    joins, opens = len(r.world.member.joins), r.world.state.opens

    def damage(record: Record) -> None:
        if record.value == "damage":
            r.world.user_code.at = lambda _: None
            raise StateCorruptError("bad block", [StoreId(A, "counts")])

    put(r.world, 0, "a")
    put(r.world, 1, "x")
    r.step(4, ms=100)
    r.world.user_code.at = damage
    put(r.world, 0, "damage")
    put(r.world, 1, "y")
    r.step(30, ms=100)
    assert (committed(r, 0), committed(r, 1)) == (2, 2)
    assert (r.world.written(0)[-1], r.world.written(1)[-1]) == (("k", 2), ("k", 2))
    assert r.rolled_back()[B] == 1
    assert (r.places, r.tasks.ended) == ({A: "processing", B: "processing"}, {})
    assert (len(r.world.member.joins), r.world.member.rejoins, r.world.state.opens) == (joins, [], opens)


def test_offsets_of_a_topic_that_kafka_does_not_take_any_more_end_its_task_only() -> None:
    """At least once. The partitions that the group refuses are those of one task: the other's commit is made again."""
    r = RunningPolling(commit_interval_ms=100, processing_guarantee="at_least_once")
    r.run(0, 1)
    put(r.world, 0, "a")
    put(r.world, 1, "x")
    r.step(1)
    refused = OffsetsRefusedError("TOPIC_AUTHORIZATION_FAILED", {TopicPartition("in", 0)})
    r.world.member.commit_errors.append(refused)
    ended(r).step(10, ms=100)
    assert TopicPartition("in", 0) not in r.world.member.committed
    assert committed(r, 1) == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in r.tasks.ended[A]
    assert r.tasks.roll_backs.count == 0


def test_when_no_task_is_left_the_thread_says_what_the_last_one_has_failed_of() -> None:
    r = RunningPolling(commit_interval_ms=100)
    r.world.state.errors = {A: StateError("disk full")}
    r.rebalance(0, 1)
    r.step(20, ms=100)
    assert (r.places[A], r.tasks.failures.last) == ("ended", None)
    r.world.state.errors[B] = StateError("disk full")
    r.rebalance(0)
    r.rebalance(0, 1)
    r.step(20, ms=100)
    assert str(r.tasks.failures.last) == "disk full"


def test_by_default_a_task_that_fails_for_good_ends_the_client_with_its_error() -> None:
    r = failing(task_failed="shutdown_client")
    with pytest.raises(DecidedError, match="user code refuses bad") as raised:
        r.step(60, ms=100)
    assert raised.value.decision is UncaughtExceptionResponse.SHUTDOWN_CLIENT
    assert committed(r, 0) == 2


def test_a_task_that_is_replaced_is_opened_anew_without_any_handler() -> None:
    r = ended(failing(task_failed="replace"))
    r.world.user_code.refused = set()
    r.step(40, ms=100)
    assert (r.tasks.ended, committed(r, 0)) == ({}, 4)


def test_a_handler_decides_whatever_the_setting_says() -> None:
    r = ended(failing(task_failed="shutdown_client", decision=UncaughtExceptionResponse.END_TASK))
    r.step(20, ms=100)
    assert r.places == {A: "ended", B: "processing"}


def test_a_bug_ends_the_thread_whichever_task_met_it() -> None:
    r = RunningPolling(commit_interval_ms=100)
    r.run(0)

    def bug(_: object) -> None:
        raise OwnershipError("this is a bug")

    r.world.user_code.at = bug
    put(r.world, 0, "a")
    with pytest.raises(OwnershipError):
        r.step(10, ms=100)


def test_what_others_send_in_a_commit_that_fails_of_one_task_at_least_once_is_sent_by_the_next() -> None:
    """What a thread processes between the last look at outputs and the commit is sent by the commit only."""
    r = RunningPolling(num_processing_threads=2, commit_interval_ms=100, processing_guarantee="at_least_once")
    r.run(0, 1)
    r.world.workers.stuck = True
    put(r.world, 0, "a")
    put(r.world, 1, "x")
    r.step()
    collect = r.loop._collect

    def then_processed() -> None:
        collect()
        r.world.workers.stuck = False
        r.world.workers.step()
        r.loop._commits.note_changed(r.tasks.processing.values())
        r.world.clients.producer.fail("send", ProductionError("the client can't take it", A))
        r.loop._collect = collect  # type: ignore[method-assign]

    r.loop._collect = then_processed  # type: ignore[method-assign]
    ended(r).step(10, ms=100)
    assert committed(r, 1) == 1
    assert [output.topic for task, output in r.world.clients.producer.sent if task == B] == [CHANGELOG, "out"]
    assert r.world.written(1) == [("k", 1)]


def test_an_error_that_is_to_end_the_client_ends_the_thread_at_once() -> None:
    """Such as that of a full disk, where the configuration says so."""
    r = RunningPolling(num_processing_threads=2, commit_interval_ms=100)
    r.run(0, 1)

    def full(**_: Any) -> None:
        raise DecidedError(StateError("disk full"), UncaughtExceptionResponse.SHUTDOWN_CLIENT)

    r.tasks.processing[A].apply = full  # type: ignore[method-assign]
    put(r.world, 0, "a")
    with pytest.raises(DecidedError, match="disk full"):
        r.step(10, ms=100)
