"""Kafka refuses a record of a transaction, and the client doesn't say of which task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.baseline.recovery import RejoinRecovery
from milestones.common.errors import KafkaUnreachableError
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.kafka.refusals import Refused, RefusedInTransactionError
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.steps import Steps
from milestones.common.topology.handlers import Action, Response
from milestones.ended_tasks.commit_isolation import OTHERS_MS, TURN_MS, CommitIsolation
from milestones.instance.context import UncaughtExceptionResponse
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from tests.milestones.fakes import A, kafka_error, put
from tests.milestones.m4_polling_thread.polling import RunningPolling
from tests.milestones.stepped_workers import Ledger

IN = TopicPartition("in", 0)
ONE, TWO, THREE = (TaskId(0, partition) for partition in range(3))
TASKS = 6


class Refusing(Ledger):
    """A producer whose broker refuses the outputs for the keys in `keys`, as long as they are in there."""

    keys: set[bytes]

    def flush(self, timeout_ms: int) -> None:
        super().flush(timeout_ms)
        if self.isolation:
            bad = [(task, output) for task, output in self.sent if output.key in self.keys and output.topic == "out"]
            error = KafkaError(KafkaError.INVALID_RECORD)
            self.refused = [Refused(task, error, output, sent=True) for task, output in bad]
            self.sent.clear()

    def send_offsets(self, *arguments: Any) -> None:
        super().send_offsets(*arguments)
        if any(output.key in self.keys for output in self._open if output.topic == "out"):
            raise RefusedInTransactionError("the broker refuses a record", single=True)


def refusing(keys: set[bytes], **settings: Any) -> RunningPolling:
    """Some tasks, each with a key of its own; outputs of these keys are refused."""
    return running(Refusing, keys, **settings)


def running(
    kind: Callable[..., Any], keys: set[bytes], fed: Iterable[int] = range(TASKS), **settings: Any
) -> RunningPolling:
    """Some tasks, each with a key of its own, and a producer of this kind. `fed`: the partitions with input."""
    r = RunningPolling(commit_interval_ms=100, num_processing_threads=2, **settings)

    def producer() -> Any:
        made = kind(r.world.logs, r.world.member)
        made.keys = keys
        return made

    r.world.clients.producer, r.world.clients.new_producer = producer(), producer  # type: ignore[method-assign]
    r.run(*range(TASKS))
    for partition in fed:
        put(r.world, partition, "a", "b", key=f"k{partition}")
    return r


def committed(r: RunningPolling) -> list[int]:
    return [
        r.world.member.committed.get(TopicPartition("in", partition), OffsetAndMetadata(0)).offset
        for partition in range(TASKS)
    ]


def test_the_guilty_task_is_found_and_ends_and_each_other_one_is_rolled_back_once() -> None:
    r = refusing({b"k3"})
    r.step(80, ms=20)
    assert r.tasks.ended.keys() == {TaskId(0, 3)}
    assert committed(r) == [2, 2, 2, 0, 2, 2]
    assert r.rolled_back() == {TaskId(0, number): 3 if number == 3 else 1 for number in range(TASKS)}
    assert r.world.clients.renewed == 2, "one that tells outputs apart, and one that doesn't any more"
    for partition in range(TASKS):
        put(r.world, partition, "c", key=f"k{partition}")
    r.step(20, ms=20)
    assert committed(r) == [3, 3, 3, 0, 3, 3]
    assert [count for _, count in r.world.written(1)] == [1, 2, 3]


def test_an_output_that_the_handler_gives_up_is_left_out_and_its_task_goes_on() -> None:
    r = refusing({b"k3"}, production_exception_handler=lambda context, error: Response(Action.CONTINUE))
    r.step(80, ms=20)
    assert r.tasks.ended == {}
    assert committed(r) == [2] * TASKS


def test_a_handler_that_fails_itself_ends_the_task_that_it_was_asked_about() -> None:
    def broken(*_: Any) -> Response:
        raise RuntimeError("no")

    r = refusing({b"k3"}, production_exception_handler=broken)
    r.step(80, ms=20)
    assert r.tasks.ended.keys() == {TaskId(0, 3)}
    assert committed(r) == [2, 2, 2, 0, 2, 2]


@pytest.mark.parametrize("recovery", [RejoinRecovery, InPlaceRecovery])
def test_a_producer_that_tells_outputs_apart_and_cannot_be_made_once_costs_a_try(recovery: Any) -> None:
    r = refusing({b"k3"})
    r.loop._recoveries._recovery = recovery(r.world.context, r.world.clients)
    clients, renew = r.world.clients, r.world.clients.renew_producer

    def fail_once(*_: Any, **__: Any) -> Steps[None]:
        yield from ()
        clients.renew_producer = renew  # type: ignore[method-assign]
        raise KafkaUnreachableError("no producer") from KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))

    clients.renew_producer = fail_once  # type: ignore[method-assign]
    r.step(120, ms=20)
    assert r.tasks.ended.keys() == {TaskId(0, 3)}
    assert committed(r) == [2, 2, 2, 0, 2, 2]


def test_two_guilty_tasks_are_both_found() -> None:
    r = refusing({b"k1", b"k4"})
    r.step(150, ms=20)
    assert r.tasks.ended.keys() == {TaskId(0, 1), TaskId(0, 4)}
    assert committed(r) == [2, 0, 2, 2, 0, 2]
    assert {count for id, count in r.rolled_back().items() if id not in r.tasks.ended} == {1}


def test_a_guilty_task_is_opened_anew_and_goes_on_once_the_cause_is_mended() -> None:
    keys = {b"k3"}
    r = refusing(keys)
    r.world.decision = UncaughtExceptionResponse.REPLACE_THREAD
    r.step(60, ms=20)
    assert committed(r) == [2, 2, 2, 0, 2, 2]
    keys.clear()
    r.step(200, ms=20)
    assert committed(r) == [2] * TASKS


def test_a_rebalance_in_the_midst_commits_all_tasks_that_leave() -> None:
    r = refusing(set())
    r.step(6)
    r.loop._ends._isolation.begin({TaskId(0, 0): {}, TaskId(0, 1): {}}, 0)  # type: ignore[attr-defined]
    r.rebalance(0, steps=5)
    assert committed(r) == [2] * TASKS


class Undelivering(Ledger):
    """A producer that doesn't get the outputs for `keys` delivered, as long as they are in there."""

    keys: set[bytes]
    error: Exception = kafka_error(KafkaError._TIMED_OUT, abort=True)

    def send_offsets(self, *arguments: Any) -> None:
        super().send_offsets(*arguments)
        if any(output.key in self.keys for output in self._open if output.topic == "out"):
            raise self.error


class Unknown(Undelivering):
    """The same, as the broker doesn't know their topic."""

    error = RefusedInTransactionError("the topic isn't known", single=True, unknown_topic=True)


@pytest.mark.parametrize("kind", [Undelivering, Unknown])
def test_outputs_that_are_not_delivered_hold_up_their_own_task_only(kind: type[Undelivering]) -> None:
    keys = {b"k3"}
    r = running(kind, keys)
    r.step(80, ms=20)
    assert r.tasks.ended == {}
    assert committed(r) == [2, 2, 2, 0, 2, 2]
    assert {count for id, count in r.rolled_back().items() if id != TaskId(0, 3)} == {1}
    keys.clear()
    r.step(80, ms=20)
    assert committed(r) == [2] * TASKS


def test_a_task_whose_outputs_are_not_delivered_within_task_timeout_ends_alone() -> None:
    r = running(Undelivering, {b"k3"}, task_timeout_ms=2_000)
    r.step(300, ms=20)
    assert r.tasks.ended.keys() == {TaskId(0, 3)}
    assert committed(r) == [2, 2, 2, 0, 2, 2]
    assert {count for id, count in r.rolled_back().items() if id != TaskId(0, 3)} == {1}


@pytest.mark.parametrize("kind", [Undelivering, Unknown])
def test_a_task_whose_outputs_are_not_delivered_ends_alone_also_while_no_other_one_has_input(kind: Any) -> None:
    r = running(kind, {b"k3"}, [3], task_timeout_ms=2_000)
    r.step(300, ms=20)
    assert r.tasks.ended.keys() == {TaskId(0, 3)}
    assert {count for id, count in r.rolled_back().items() if id != TaskId(0, 3)} == {1}
    put(r.world, 0, "a", key="k0")
    r.step(20, ms=20)
    assert committed(r) == [1, 0, 0, 0, 0, 0]


def test_a_task_that_is_refused_again_and_again_is_opened_anew_for_as_long_as_it_takes() -> None:
    """Also beyond `task_timeout_ms`, and while no other task commits anything."""
    keys = {b"k3"}
    r = running(Refusing, keys, [3], task_timeout_ms=2_000)
    r.world.decision = UncaughtExceptionResponse.REPLACE_THREAD
    r.step(1_000, ms=20)
    keys.clear()
    r.step(1_000, ms=20)
    assert committed(r) == [0, 0, 0, 2, 0, 0]


def test_outputs_for_which_no_transaction_could_be_begun_are_in_the_next_one() -> None:
    """Their task isn't rolled back, as only the tasks of a transaction that fails are while suspects take turns."""
    r = refusing({b"k3"})
    while not r.loop._ends.isolating:
        r.step(1, ms=20)
    for _ in range(TASKS):
        r.world.clients.producer.fail("send", kafka_error(KafkaError._TRANSPORT, abort=True))
        r.step(10, ms=20)
    r.step(100, ms=20)
    assert committed(r) == [2, 2, 2, 0, 2, 2]
    assert [[count for _, count in r.world.written(partition)] for partition in (0, 1, 2, 4, 5)] == [[1, 2]] * 5


# -- turns


def able(_: TaskId) -> bool:
    return True


def in_turn(isolation: CommitIsolation) -> list[str]:
    return [str(task) for task in (ONE, TWO, THREE) if isolation.admits(task)]


def test_without_suspects_every_task_may_be_in_the_next_transaction() -> None:
    assert in_turn(CommitIsolation()) == ["0_0", "0_1", "0_2"]


def test_all_others_are_first_then_each_suspect_alone_until_it_has_come_as_far_as_before() -> None:
    isolation = CommitIsolation()
    isolation.begin({ONE: {IN: 5}, TWO: {}}, 0)
    assert in_turn(isolation) == ["0_2"]
    isolation.run_once(OTHERS_MS, able)
    assert in_turn(isolation) == ["0_0"]
    isolation.committed({IN: OffsetAndMetadata(4)})
    isolation.run_once(OTHERS_MS + 1, able)
    assert in_turn(isolation) == ["0_1"]
    isolation.committed({})
    isolation.run_once(OTHERS_MS + 2, able)
    assert in_turn(isolation) == ["0_1", "0_2"]
    isolation.committed({})
    isolation.run_once(OTHERS_MS + 3, able)
    assert in_turn(isolation) == ["0_0"]
    isolation.committed({IN: OffsetAndMetadata(5)})
    assert not isolation
    assert in_turn(isolation) == ["0_0", "0_1", "0_2"]


def test_a_suspect_that_commits_nothing_holds_the_others_up_for_a_turn_only() -> None:
    isolation = CommitIsolation()
    isolation.begin({ONE: {IN: 5}, TWO: {IN: 5}}, 0)
    isolation.run_once(OTHERS_MS, able)
    isolation.run_once(OTHERS_MS + TURN_MS - 1, able)
    assert in_turn(isolation) == ["0_0"]
    isolation.run_once(OTHERS_MS + TURN_MS, able)
    assert in_turn(isolation) == ["0_1"]


def test_those_of_an_earlier_transaction_stay_suspected() -> None:
    isolation = CommitIsolation()
    isolation.begin({ONE: {IN: 5}}, 0)
    isolation.begin({TWO: {IN: 5}}, 1_000)
    assert in_turn(isolation) == ["0_2"]
    assert [isolation.suspected_ms(task, 3_000) for task in (ONE, TWO, THREE)] == [3_000, 2_000, None]


def test_a_suspect_may_fail_for_good_while_its_commit_is_under_way() -> None:
    isolation = CommitIsolation()
    isolation.begin({ONE: {IN: 5}, TWO: {IN: 5}}, 0)
    isolation.run_once(OTHERS_MS, able)
    isolation.clear(ONE)
    isolation.committed({IN: OffsetAndMetadata(5)})
    isolation.run_once(OTHERS_MS + 1, able)
    assert in_turn(isolation) == ["0_1"]


def test_a_suspect_that_leaves_is_passed_over() -> None:
    isolation = CommitIsolation()
    isolation.begin({A: {IN: 5}, TWO: {IN: 5}}, 0)
    isolation.run_once(OTHERS_MS, able)
    isolation.clear(A)
    isolation.run_once(OTHERS_MS + 1, able)
    assert in_turn(isolation) == ["0_1"]


def test_the_tasks_of_a_commit_that_failed_are_in_no_later_transaction() -> None:
    """They are rolled back once for it, however long the next commit takes."""
    r = refusing(set())
    r.step(6)
    r.world.clients.producer.fail("send_offsets", StaleGenerationError("a test"))
    r.step(8, ms=20)
    assert r.tasks.roll_backs.count == 1
    assert r.loop._commits.unconfirmed == {}
    assert set(r.loop._recoveries._transaction().reached) <= r.world.clients.producer.contributors


def test_suspects_without_anything_to_commit_are_passed_over_until_they_have() -> None:
    isolation, busy = CommitIsolation(), set[TaskId]()
    isolation.begin({ONE: {IN: 5}, TWO: {IN: 5}}, 0)
    isolation.run_once(OTHERS_MS, busy.__contains__)
    assert in_turn(isolation) == ["0_2"]
    busy.add(TWO)
    isolation.run_once(2 * OTHERS_MS, busy.__contains__)
    assert in_turn(isolation) == ["0_1"]
    busy.clear()
    isolation.run_once(2 * OTHERS_MS + 1, busy.__contains__)
    assert in_turn(isolation) == ["0_2"]


def test_suspects_in_long_calls_hold_up_no_commit_of_the_others() -> None:
    r = refusing(set())
    r.step(10, ms=20)
    isolation = r.loop._ends._isolation  # type: ignore[attr-defined]
    isolation.begin({TaskId(0, number): {TopicPartition("in", number): 99} for number in range(5)}, 0)
    for turn in range(10):
        put(r.world, 5, "c")
        before = committed(r)[5]
        r.step(5, ms=20)
        assert committed(r)[5] > before, turn
