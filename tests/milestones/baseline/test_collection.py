"""When outputs may be sent at all."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.baseline.collection import DirectCollection
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.records import Output, TaskId
from tests.milestones.fakes import World


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
        collecting.send(task, boundary)  # type: ignore[arg-type]
    assert world.producer.sent == []


def test_a_thread_that_stood_still_while_it_waited_for_room_sends_nothing_more() -> None:
    world, collecting = collection("at_least_once")
    member, producer = world.clients.member, world.producer
    member.silent, producer.room = False, 0
    producer.while_full = lambda: setattr(member, "silent", True)
    with pytest.raises(StaleGenerationError, match="the session is over"):
        collecting.send(Task(), Boundary())  # type: ignore[arg-type]
    assert producer.sent == []


def test_a_thread_that_has_nothing_to_send_may_wait_for_its_group_as_long_as_it_takes() -> None:
    _, collecting = collection("at_least_once")
    assert not collecting.collect([])


def test_under_exactly_once_kafka_itself_fences_what_is_late() -> None:
    world, collecting = collection("exactly_once_v2")
    assert collecting.collect([Task()])  # type: ignore[list-item]
    assert len(world.producer.sent) == 1
