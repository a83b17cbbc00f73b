"""When outputs may be sent at all."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.baseline.collection import DirectCollection
from milestones.common.kafka.membership import CommitRetriableError, StaleGenerationError
from milestones.common.records import Output, TaskId
from milestones.common.steps import to_the_end
from tests.milestones.fakes import TIMED_OUT, FakeProducer, World


class Task:
    """As much of a task as collecting needs."""

    id, changelog_topics = TaskId(0, 0), frozenset[str]()

    def take_outputs(self) -> list[Output]:
        return [Output("out", 0, b"k", b"v", 5, [], "sink")]


class Boundary:
    """As much of a boundary as sending needs."""

    outputs = Task().take_outputs()


def collection(guarantee: str) -> tuple[World, DirectCollection]:
    """Of a thread whose group hasn't answered for longer than the session."""
    world = World(settings={"processing_guarantee": guarantee})
    world.clients.member.silent = True
    clients: Any = world.clients
    return world, DirectCollection(world.context, clients)


def test_a_thread_that_stood_still_beyond_its_session_sends_nothing_that_no_transaction_fences() -> None:
    world, collecting = collection("at_least_once")
    task, boundary = Task(), Boundary()
    with pytest.raises(StaleGenerationError, match="the session is over"):
        collecting.collect([task])  # type: ignore[list-item]
    with pytest.raises(StaleGenerationError, match="the session is over"):
        to_the_end(collecting.send({task: boundary}, 1_000))  # type: ignore[dict-item]
    assert world.producer.sent == []


def test_a_thread_that_stood_still_while_it_waited_for_room_sends_nothing_more() -> None:
    world, collecting = collection("at_least_once")
    member, producer = world.clients.member, world.producer
    member.silent, producer.room = False, 0
    producer.while_full = lambda: setattr(member, "silent", True)
    with pytest.raises(StaleGenerationError, match="the session is over"):
        to_the_end(collecting.send({Task(): Boundary()}, 1_000))  # type: ignore[dict-item]
    assert producer.sent == []


def test_a_thread_that_has_nothing_to_send_may_wait_for_its_group_as_long_as_it_takes() -> None:
    _, collecting = collection("at_least_once")
    assert not collecting.collect([])


def test_under_exactly_once_kafka_itself_fences_what_is_late() -> None:
    world, collecting = collection("exactly_once_v2")
    assert collecting.collect([Task()])  # type: ignore[list-item]
    assert len(world.producer.sent) == 1


def test_a_commit_waits_for_a_slow_kafka_as_long_as_it_takes_anything() -> None:
    """Else a commit that needs more time than one try would never be made."""
    world = World(settings={"processing_guarantee": "at_least_once"})
    collecting = DirectCollection(world.context, world.clients)  # type: ignore[arg-type]
    world.producer.while_full = lambda: setattr(world.producer, "room", len(world.producer.sent) + 1)
    world.producer.room, boundary = 0, Boundary()
    boundary.outputs = Boundary.outputs * 20
    assert to_the_end(collecting.send({Task(): boundary}, 1_000))  # type: ignore[dict-item]
    assert (len(world.producer.sent), world.clock.monotonic_ms()) == (20, 20_000)


def test_a_flush_waits_for_a_slow_kafka_as_long_as_it_acknowledges_anything() -> None:
    world = World(settings={"processing_guarantee": "at_least_once"})
    collecting, left = DirectCollection(world.context, world.clients), [10]  # type: ignore[arg-type]

    def flush(timeout_ms: int) -> None:
        world.clock.advance(timeout_ms)
        left[0] -= 1
        world.producer.unacknowledged = max(0, left[0])
        if left[0] > 0:
            raise TIMED_OUT

    world.producer.unacknowledged, world.producer.flush = 10, flush  # type: ignore[method-assign]
    to_the_end(collecting.flush())
    left[0] = 0
    world.producer.unacknowledged = 5
    world.producer.flush = FakeProducer.flush.__get__(world.producer)  # type: ignore[method-assign]
    world.producer.fail("flush", *[TIMED_OUT] * 100)
    with pytest.raises(CommitRetriableError, match="without a leader"):
        to_the_end(collecting.flush())
