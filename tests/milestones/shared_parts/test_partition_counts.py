"""What a partitioner is told of its topic, and what becomes of the record when Kafka doesn't say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common import serdes
from milestones.common.errors import TaskCorruptedError, TimeoutExceededError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.topology import Topology
from milestones.common.topology.handlers import Action, Response
from milestones.shared_parts.partition_counts import asked_of_admin, asked_of_consumer
from milestones.shared_parts.state import TaskOwnedState
from tests.milestones.fakes import TIMED_OUT, Passing, Running, World, kafka_error, put
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing

IN = TopicPartition("in", 0)
UNKNOWN = kafka_error(KafkaError.UNKNOWN_TOPIC_OR_PART)


class Owned(TaskOwnedState):
    """Makes real tasks, with the partition counts of the stage; nothing lies on the disk."""

    def closed_positions(self, opening: Collection[TaskId] = ()) -> Mapping[TaskId, int]:
        return {}


class Asked:
    """Skips every record that it is asked about."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def __call__(self, _: Any, error: Exception) -> Response:
        self.errors.append(error)
        return Response(Action.CONTINUE)


def partitioned() -> Topology:
    """in -> out, the partition chosen by a partitioner."""
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("passing", Passing, "source")
    topology.add_sink(
        "sink", "out", "passing", key=serdes.STRING, value=serdes.STRING,
        partitioner=lambda topic, key, value, count: count - 1,
    )  # fmt: skip
    return topology


STAGES: dict[str, Callable[..., Running]] = {
    "baseline": lambda **settings: Running(World(partitioned(), settings)),
    "m2": lambda **settings: RunningProcessing(ProcessingWorld(partitioned(), **settings)),
}


def stage(name: str, *errors: Exception, **settings: Any) -> tuple[Running, Asked]:
    """A running task with a record that waits. Kafka answers questions about its topic with the errors, then that the
    topic has three partitions."""
    r = STAGES[name](processing_exception_handler=(handler := Asked()), **settings)
    answers = list(errors)

    def partitions_of(topic: str, timeout_ms: int) -> int:
        if answers:
            raise answers.pop(0)
        return 3

    r.world.consumer.partitions_of = partitions_of  # type: ignore[method-assign]
    r.world.parts = replace(r.world.parts, state=Owned, partition_counts=asked_of_consumer)
    r.loop = r.world.loop()
    r.run(0)
    put(r.world, 0, "a")
    return r, handler


def sent_to_out(world: World) -> list[tuple[int, bytes | None]]:
    """Partition and value of what is sent; a `Ledger` keeps it in the logs."""
    logged = [message for at, log in world.logs.items() if at.topic == "out" for message in log.entries if message]
    return [(output.partition, output.value) for _, output in world.producer.sent] or [
        (message.partition() or 0, message.value()) for message in logged  # type: ignore[misc]
    ]


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_record_is_kept_until_kafka_says_how_many_partitions_its_topic_has(name: str, guarantee: str) -> None:
    r, handler = stage(name, TIMED_OUT, TIMED_OUT, processing_guarantee=guarantee)
    r.step(30, ms=100)
    assert handler.errors == [], "it isn't the record's fault"
    assert sent_to_out(r.world) == [(2, b"a")]
    committed = r.world.producer.committed or r.world.member.committed
    assert committed[IN].offset == 1


@pytest.mark.parametrize("name", STAGES)
def test_a_topic_that_does_not_exist_is_the_handlers_business(name: str) -> None:
    r, handler = stage(name, UNKNOWN, processing_guarantee="at_least_once")
    r.step(10, ms=100)
    assert handler.errors == [UNKNOWN]


@pytest.mark.parametrize("name", STAGES)
def test_a_thread_ends_when_kafka_has_not_said_for_task_timeout(name: str) -> None:
    r, handler = stage(name, *[TIMED_OUT] * 1_000, task_timeout_ms=2_000)
    began_ms = r.world.clock.monotonic_ms()
    with pytest.raises(TimeoutExceededError, match="partition count of out isn't known yet"):
        r.step(1_000, ms=100)
    assert 2_000 <= r.world.clock.monotonic_ms() - began_ms < 4_000
    assert handler.errors == []


def test_an_admin_client_that_no_broker_answers_costs_no_record_either() -> None:
    world = World(settings={"request_timeout_ms": 1})
    ask = asked_of_admin(world.context, world.clients)  # type: ignore[arg-type]
    with pytest.raises(TaskCorruptedError, match="out isn't known yet"):
        ask("out")


def test_other_errors_of_the_question_stay_as_they_are() -> None:
    world = World()

    def refused(topic: str, timeout_ms: int) -> int:
        raise UNKNOWN

    world.consumer.partitions_of = refused  # type: ignore[method-assign]
    with pytest.raises(KafkaException) as caught:
        asked_of_consumer(world.context, world.clients)("out")  # type: ignore[arg-type]
    assert caught.value is UNKNOWN
