"""How a thread without an admin client has requests made by the owner of one."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.kafka.admin import (
    ANSWER_MS,
    STEP_MS,
    AdminCall,
    AdminDesk,
    OwnAdmin,
    answered,
    by_another_client,
    rest,
)
from milestones.common.kafka.failures import is_passing
from milestones.common.testing import StepClock


class Client: ...


class FakeCluster:
    def __init__(self) -> None:
        self.client, self.failures, self.renewed = Client(), list[Exception](), 0

    def renew(self) -> None:
        self.client, self.renewed = Client(), self.renewed + 1

    def renew_after(self, exception: Exception) -> None:
        self.failures.append(exception)


class Desk:
    """A desk, its cluster, and calls whose answers are given by hand."""

    def __init__(self) -> None:
        self.desk, self.cluster, self.now_ms = AdminDesk(), FakeCluster(), 0

    def begin(self, *names: str) -> tuple[Future[Any], dict[str, Future[Any]]]:
        futures: dict[str, Future[Any]] = {name: Future() for name in names}
        call = AdminCall(lambda _: futures)
        self.desk.begin(call, self.cluster, self.now_ms)  # type: ignore[arg-type]
        return call.answers, futures

    def run(self, ms: int = 0) -> None:
        self.now_ms += ms
        self.desk.run_once(self.cluster, self.now_ms)  # type: ignore[arg-type]


def error(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def test_a_call_is_answered_once_all_its_requests_are_without_the_owner() -> None:
    answers, futures = Desk().begin("a", "b")
    futures["a"].set_result(1)
    assert not answers.done()
    futures["b"].set_exception(error(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert answers.result(0) == futures


def test_a_call_without_requests_is_answered_at_once() -> None:
    answers, _ = Desk().begin()
    assert answers.result(0) == {}


def test_a_call_that_cannot_begin_gets_the_error_and_the_owner_goes_on() -> None:
    desk, call = AdminDesk(), AdminCall[str, int](lambda _: {"a": 1 / 0})  # type: ignore[dict-item]
    desk.begin(call, FakeCluster(), 0)  # type: ignore[arg-type]
    assert isinstance(call.answers.exception(0), ZeroDivisionError)


def test_a_call_whose_thread_has_given_up_is_not_begun() -> None:
    begun, call = list[object](), AdminCall[str, int](lambda cluster: begun.append(cluster) or {})  # type: ignore[func-returns-value]
    call.answers.cancel()
    AdminDesk().begin(call, FakeCluster(), 0)  # type: ignore[arg-type]
    assert begun == []


def test_a_call_that_the_client_has_lost_gets_an_error_that_passes_and_a_late_answer_does_no_harm() -> None:
    d = Desk()
    answers, futures = d.begin("a")
    d.run(ANSWER_MS - 1)
    assert not answers.done()
    d.run(1)
    assert is_passing(answers.exception(0) or ValueError())
    futures["a"].set_result(1)


def test_a_client_that_was_replaced_lives_until_its_calls_are_answered() -> None:
    """One that is let go never answers."""
    d = Desk()
    asked = weakref.ref(d.cluster.client)
    _, futures = d.begin("a")
    d.cluster.renew()
    d.run()
    gc.collect()
    assert asked() is not None
    futures["a"].set_result(1)
    d.run()
    gc.collect()
    assert asked() is None


@pytest.mark.parametrize(
    ("code", "renewed"), [(KafkaError.FENCED_LEADER_EPOCH, True), (KafkaError.UNKNOWN_TOPIC_OR_PART, False)]
)
def test_a_client_is_replaced_after_an_error_that_may_be_its_own_fault(code: int, renewed: bool) -> None:
    d = Desk()
    _, futures = d.begin("a", "b")
    futures["a"].set_result(1)
    futures["b"].set_exception(error(code))
    d.run()
    d.run()
    assert len(d.cluster.failures) == renewed


def test_a_call_may_ask_for_another_client() -> None:
    d = Desk()
    old = d.cluster.client
    asked: list[object] = []

    def begin(cluster: Any) -> dict[str, Future[int]]:
        asked.append(cluster.client)
        return {}

    d.desk.begin(AdminCall(by_another_client(begin)), d.cluster, 0)  # type: ignore[arg-type]
    assert old not in asked
    assert d.cluster.renewed == 1


def test_calls_that_are_given_up_get_the_error() -> None:
    d = Desk()
    answers, _ = d.begin("a")
    d.desk.close(ended := ValueError("the end"))
    assert answers.exception(0) is ended


def test_a_thread_without_a_housekeeper_makes_its_client_when_it_first_asks() -> None:
    made: list[FakeCluster] = []

    def make() -> Any:
        made.append(FakeCluster())
        return made[-1]

    admin = OwnAdmin(make)
    assert made == []
    for _ in range(2):
        assert admin.ask(lambda _: {}).result(0) == {}
    assert len(made) == 1


def driven(steps: Generator[None, None, Any], clock: StepClock, ms: int = STEP_MS) -> tuple[Any, int]:
    """What the steps return, and how many there were."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1
        clock.advance(ms)


def test_an_answer_is_awaited_in_steps() -> None:
    answers: Future[int] = Future()
    steps = answered(answers, StepClock())
    for _ in range(3):
        next(steps)
    answers.set_result(7)
    assert driven(steps, StepClock()) == (7, 0)


def test_an_owner_that_hangs_is_waited_for_only_so_long_and_need_not_begin_any_more() -> None:
    answers: Future[int] = Future()
    clock = StepClock()
    with pytest.raises(KafkaException) as raised:
        driven(answered(answers, clock), clock, ms=ANSWER_MS // 3)
    assert is_passing(raised.value)
    assert answers.cancelled()


def test_a_rest_is_taken_in_steps() -> None:
    clock = StepClock()
    began_ms = clock.monotonic_ms()
    assert driven(rest(clock, 5 * STEP_MS), clock, ms=0)[1] == 5
    assert clock.monotonic_ms() - began_ms == 5 * STEP_MS


def test_the_end_waits_for_what_is_under_way_but_not_for_ever() -> None:
    d = Desk()
    _, futures = d.begin("a")
    d.desk.end(1)
    assert not futures["a"].done()
    _, futures = d.begin("b")
    thread = threading.Timer(0.05, futures["b"].set_result, [1])
    thread.start()
    d.desk.end(10_000)
    assert futures["b"].done()
    thread.join()
