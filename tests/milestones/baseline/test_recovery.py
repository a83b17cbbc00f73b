"""Which error costs what: nothing but the uncommitted work, the tasks, or the thread. What fencing tolerance answers in
the same way is tried with its recovery too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.baseline.recovery import RejoinRecovery
from milestones.common.errors import (
    KafkaUnreachableError,
    MilestonesError,
    ProcessingError,
    ProductionError,
    RefusedTogetherError,
    StateCorruptError,
    StateError,
    TaskCorruptedError,
    TaskMigratedError,
    TimeoutExceededError,
)
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.common.records import StoreId, TopicPartition
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from tests.milestones.fakes import FENCED, ILLEGAL_GENERATION, TIMED_OUT, A, Running, World, kafka_error, put
from tests.milestones.m3_fencing_tolerance.tolerant import TolerantWorld

Recover = Callable[[World, Exception], bool]


@pytest.fixture(params=[RejoinRecovery, InPlaceRecovery])
def recover(request: pytest.FixtureRequest) -> Recover:
    """The answer of each recovery."""
    return lambda world, error: request.param(world.context, world.clients).recover(error)


@pytest.fixture
def world() -> World:
    world = TolerantWorld()
    world.producer.begin()
    return world


ROLLED_BACK: dict[str, Exception] = {
    "a stale generation in the transaction": ILLEGAL_GENERATION,
    "an unknown member": kafka_error(KafkaError.UNKNOWN_MEMBER_ID, abort=True),
    "a fenced instance id": kafka_error(KafkaError.FENCED_INSTANCE_ID, abort=True),
    "any error that asks for an abort": kafka_error(KafkaError._MSG_TIMED_OUT, abort=True),
    "a member without a generation": StaleGenerationError("none"),
    "tasks whose work is void": TaskCorruptedError("void", [A]),
    "a damaged store": StateCorruptError("damaged", [StoreId(A, "counts")]),
}


@pytest.mark.parametrize("error", ROLLED_BACK.values(), ids=ROLLED_BACK)
def test_is_aborted_and_the_tasks_go_on_in_place_with_the_same_producer(
    world: World, recover: Recover, error: Exception
) -> None:
    assert recover(world, error)
    assert world.producer.calls == ["begin", "abort", "poll"]
    assert world.clients.renewed == 0


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, TaskCorruptedError("void", [A])], ids=str)
def test_an_abort_after_a_broken_connection_may_end_the_next_transaction_so_that_gets_another_producer(
    world: World, recover: Recover, error: Exception
) -> None:
    world.producer.disconnected = True
    assert recover(world, error)
    assert world.clients.renewed == 1


def test_outputs_that_were_refused_together_are_told_apart_by_the_next_producer(
    world: World, recover: Recover
) -> None:
    assert recover(world, RefusedTogetherError("refused", [A]))
    assert (world.clients.renewed, world.producer.isolation) == (1, BatchIsolation())


@pytest.mark.parametrize(
    ("error", "identifies_rejected"),
    [(StaleGenerationError("none"), False), (TaskCorruptedError("void", [A]), False),
     (RefusedTogetherError("refused", [A]), True)], ids=str,
)  # fmt: skip
def test_without_transactions_what_is_queued_is_thrown_away_with_its_producer(
    recover: Recover, error: Exception, identifies_rejected: bool
) -> None:
    world = TolerantWorld(settings={"processing_guarantee": "at_least_once"})
    old = world.producer
    assert recover(world, error)
    assert old.closed
    assert (world.clients.renewed, world.producer.isolation is not None) == (1, identifies_rejected)


@pytest.mark.parametrize(
    "error",
    [
        ProcessingError("user code", A),
        ProductionError("too large", A),
        StateError("disk"),
        TimeoutExceededError("committed offsets"),
        MilestonesError("any"),
        RuntimeError("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_about_transactions_ends_the_thread(world: World, recover: Recover, error: Exception) -> None:
    with pytest.raises(type(error)):
        recover(world, error)
    assert world.producer.calls == ["begin"]


def test_a_new_producer_that_cannot_be_made_ends_the_thread(world: World, recover: Recover) -> None:
    world.clients.renewal_error = KafkaUnreachableError("no broker")
    with pytest.raises(KafkaUnreachableError):
        recover(world, FENCED)


# -- the baseline alone


def rejoin(world: World, error: Exception) -> bool:
    clients: Any = world.clients
    return RejoinRecovery(world.context, clients).recover(error)


def test_a_topic_that_a_broker_does_not_know_yet_is_aborted_and_the_tasks_go_on_in_place(world: World) -> None:
    assert rejoin(world, RefusedInTransactionError("unknown", single=True, unknown_topic=True))
    assert ("abort" in world.producer.calls, world.clients.renewed) == (True, 0)


LOST: dict[str, Exception] = {
    "a fenced producer": FENCED,
    "an error without any mark": kafka_error(KafkaError._STATE),
    "a commit without an answer": TaskMigratedError("no answer"),
    "a call that kept failing": TIMED_OUT,
}


@pytest.mark.parametrize("error", LOST.values(), ids=LOST)
def test_costs_the_tasks_and_makes_a_new_producer(world: World, error: Exception) -> None:
    assert not rejoin(world, error)
    assert world.clients.renewed == 1


def test_an_abort_that_fails_costs_the_tasks(world: World) -> None:
    world.producer.fail("abort", FENCED)
    assert not rejoin(world, ILLEGAL_GENERATION)
    assert world.clients.renewed == 1


def unready() -> KafkaUnreachableError:
    """What a producer raises that isn't initialised in time."""
    error = KafkaUnreachableError("not in time")
    error.__cause__ = TIMED_OUT
    return error


@pytest.mark.parametrize("error", [FENCED, ILLEGAL_GENERATION], ids=["lost", "aborted"])
def test_the_group_waits_for_a_new_producer_a_quarter_of_max_poll_interval_at_most(error: Exception) -> None:
    world = World(settings={"max_poll_interval_ms": 60_000, "task_timeout_ms": 300_000})
    world.producer.begin()
    world.producer.disconnected = True
    world.clients.renewal_error = unready()
    assert rejoin(world, error) == (error is ILLEGAL_GENERATION)
    assert world.clients.within_ms == 15_000


def lost(r: Running, times: int) -> None:
    """Kafka fences the producer; the group gives the thread its tasks back each time they are lost."""
    for _ in range(times):
        asked = len(r.world.member.rejoins)
        r.step(2, ms=100)
        if len(r.world.member.rejoins) > asked:
            r.rebalance(0)


def test_a_producer_that_was_not_ready_in_time_is_made_when_it_is_needed() -> None:
    r = Running().run(0)
    r.world.clients.renewal_error = unready()
    r.world.producer.fail("commit", FENCED)
    put(r.world, 0, "a", "b")
    lost(r, 10)
    assert r.world.producer.committed == {}
    r.world.clients.renewal_error = None
    lost(r, 10)
    assert r.world.producer.committed[TopicPartition("in", 0)].offset == 2


def test_a_thread_that_gets_no_producer_for_task_timeout_ends() -> None:
    r = Running(World(settings={"task_timeout_ms": 2_000})).run(0)
    r.world.clients.renewal_error = unready()
    r.world.producer.fail("commit", FENCED)
    put(r.world, 0, "a", "b")
    began_ms = r.world.clock.monotonic_ms()
    with pytest.raises(TimeoutExceededError, match="task_timeout_ms"):
        lost(r, 1_000)
    assert 2_000 <= r.world.clock.monotonic_ms() - began_ms < 4_000
