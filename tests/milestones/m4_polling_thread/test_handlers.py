"""The user's handlers, which run beside the polling thread: what waits for their answers, and what doesn't."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.common.kafka.membership import Lost
from milestones.common.kafka.refusals import Refused
from milestones.common.records import Output, TopicPartition
from milestones.common.topology.handlers import Action, Response
from milestones.ended_tasks.handler_thread import AGAIN_MS, CALLS_OF_A_THREAD
from milestones.instance.context import UncaughtExceptionResponse
from milestones.m4_polling_thread.thread import PollingThread
from tests.milestones.ended_tasks.test_commit_isolation import TASKS, committed, refusing
from tests.milestones.ended_tasks.test_task_failure_policy import ended, failing
from tests.milestones.fakes import NO_CLIENTS, A, put
from tests.milestones.m4_polling_thread.polling import PollingWorld, RunningPolling

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
GUARANTEES = pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
LETTER = Output("letters", 0, b"k", b"letter", 5, [], None)


def refused(guarantee: str, action: Action, *letters: Output, outputs: int = 1) -> RunningPolling:
    """Two tasks; the client refuses outputs of the first one, and its handler hasn't begun to say `action`."""
    r = RunningPolling(
        commit_interval_ms=100, num_processing_threads=2, processing_guarantee=guarantee,
        production_exception_handler=lambda context, error: Response(action, letters),
    )  # fmt: skip
    r.run(0, 1)
    r.world.handlers.held = True
    put(r.world, 0, "a")
    put(r.world, 1, "x")
    r.step(2)
    producer = r.world.clients.producer
    producer.refused += [Refused(A, TOO_LARGE, LETTER._replace(topic="out")) for _ in range(outputs)]
    return r


def offset(r: RunningPolling, partition: int) -> int | None:
    found = r.world.member.committed.get(TopicPartition("in", partition))
    return None if found is None else found.offset


@GUARANTEES
def test_a_commit_waits_for_the_handler_while_the_group_is_answered_and_records_are_processed(guarantee: str) -> None:
    r = refused(guarantee, Action.CONTINUE, LETTER)
    r.step(10, ms=50)
    assert (offset(r, 0), offset(r, 1)) == (None, None)
    put(r.world, 1, "y")
    r.rebalance(0, 1, steps=5)
    assert "y" in r.world.user_code.seen
    assert (offset(r, 0), offset(r, 1)) == (None, None)
    r.world.handlers.release()
    r.step(10, ms=50)
    assert (offset(r, 0), offset(r, 1)) == (1, 2)
    assert [output for _, output in r.world.clients.producer.sent if output.topic == "letters"] == [LETTER]
    assert r.loop._collection.dropped == {A: 1}
    assert r.tasks.roll_backs.count == 0


@GUARANTEES
def test_a_handler_that_says_fail_later_ends_its_task_alone(guarantee: str) -> None:
    r = refused(guarantee, Action.FAIL)
    r.step(5, ms=50)
    r.world.handlers.release()
    ended(r).step(10, ms=100)
    assert offset(r, 1) == 1
    assert "Kafka refused a record for out-0" in r.tasks.ended[A]


@GUARANTEES
def test_a_handler_that_stays_silent_has_failed_its_task_after_a_quarter_of_max_poll_interval_ms(
    guarantee: str,
) -> None:
    r = refused(guarantee, Action.CONTINUE, outputs=3)
    r.step(4, ms=50)
    r.world.clock.advance(r.world.context.longest_wait_ms)
    ended(r).step(10, ms=100)
    assert "production_exception_handler hasn't answered for 75" in r.tasks.ended[A]
    assert offset(r, 1) == 1
    r.world.handlers.release()
    put(r.world, 1, "y")
    r.step(10, ms=100)
    assert offset(r, 1) == 2


def test_the_refusals_of_a_task_are_decided_in_order_by_one_thread_at_a_time() -> None:
    count = 2 * CALLS_OF_A_THREAD + 1
    r = refused("at_least_once", Action.CONTINUE, outputs=count)
    r.step(4, ms=50)
    assert len(r.world.handlers.waiting) == 1
    r.world.handlers.release()
    r.step(10, ms=50)
    assert r.loop._collection.dropped == {A: count}
    assert offset(r, 0) == 1


def test_an_answer_about_a_transaction_that_is_over_counts_no_more() -> None:
    r = refused("exactly_once_v2", Action.FAIL)
    r.step(4, ms=50)
    assert r.world.handlers.waiting
    r.hear(Lost("a test"))
    r.rebalance(0, 1, steps=4)
    r.world.handlers.release()
    r.step(10, ms=100)
    assert r.tasks.ended == {}
    assert (offset(r, 0), offset(r, 1)) == (1, 1)


def test_a_guilty_task_goes_on_once_its_handler_has_given_the_output_up_however_late() -> None:
    r = refusing({b"k3"}, production_exception_handler=lambda context, error: Response(Action.CONTINUE))
    r.world.handlers.held = True
    r.step(80, ms=20)
    assert committed(r)[3] == 0
    r.world.handlers.release()
    r.step(80, ms=20)
    assert r.tasks.ended == {}
    assert committed(r) == [2] * TASKS


def test_a_handler_thread_that_cant_be_started_is_tried_again_and_the_polling_thread_goes_on() -> None:
    r = failing(decision=UncaughtExceptionResponse.REPLACE_THREAD)
    r.world.handlers.refusing = True
    ended(r)
    put(r.world, 1, "x")
    r.step(5, ms=100)
    assert offset(r, 1) == 1
    assert r.world.asked == []
    r.world.handlers.refusing, r.world.user_code.refused = False, set()
    r.step(30, ms=AGAIN_MS // 10)
    assert len(r.world.asked) == 1
    assert r.places[A] == "processing"


# -- the death of the polling thread itself


def dying(decide: Any, **settings: Any) -> Any:
    """A polling thread whose handler does this; the decision about its death."""
    world = PollingWorld(**settings)
    context = replace(world.context, decide=decide)
    return PollingThread(context, world.parts, NO_CLIENTS).decision(context, ValueError("the group is gone"))


def test_the_handler_of_a_dying_polling_thread_runs_in_another_thread() -> None:
    names: list[str] = []

    def decide(error: BaseException, default: Any = None) -> UncaughtExceptionResponse:
        names.append(threading.current_thread().name)
        return UncaughtExceptionResponse.REPLACE_THREAD

    assert dying(decide) is UncaughtExceptionResponse.REPLACE_THREAD
    assert names == ["app-UncaughtExceptionHandler"]


def test_a_dying_polling_thread_waits_for_its_handler_for_a_quarter_of_max_poll_interval_ms() -> None:
    hangs = threading.Event()
    try:
        assert dying(lambda *_: hangs.wait(), max_poll_interval_ms=200) is UncaughtExceptionResponse.SHUTDOWN_CLIENT
    finally:
        hangs.set()


def test_a_dying_polling_thread_whose_handler_cant_be_asked_shuts_the_client_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert dying(lambda *_: UncaughtExceptionResponse.REPLACE_THREAD) is UncaughtExceptionResponse.SHUTDOWN_CLIENT
