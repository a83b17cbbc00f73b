"""When outputs may be sent at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException

from milestones.baseline.collection import DirectCollection
from milestones.common.kafka.membership import CommitRetriableError, StaleGenerationError
from milestones.common.records import TOPIC, output_of
from milestones.common.steps import to_the_end
from milestones.m2_processing_threads.collection import BufferedCollection
from tests.milestones.fakes import TIMED_OUT, FakeProducer, World
from tests.milestones.shared_parts.test_refused_outputs import Task, output
from tests.outputs import emitted


def collection(guarantee: str, *, silent: bool = True) -> tuple[World, DirectCollection]:
    """Of a thread whose group hasn't answered for longer than the session, or has."""
    world = World(settings={"processing_guarantee": guarantee})
    world.clients.member.silent = silent
    clients: Any = world.clients
    return world, DirectCollection(world.context, clients)


def frozen(count: int = 1) -> dict[Any, Any]:
    """A task with a boundary of so many outputs."""
    return {Task(): SimpleNamespace(outputs=[emitted("out")] * count, changelog=tuple)}


def test_a_thread_that_stood_still_beyond_its_session_sends_nothing_that_no_transaction_fences() -> None:
    world, collecting = collection("at_least_once")
    with pytest.raises(StaleGenerationError, match="the session is over"):
        collecting.collect([Task(output())])  # type: ignore[list-item]
    with pytest.raises(StaleGenerationError, match="the session is over"):
        to_the_end(collecting.send(frozen(), 1_000))
    assert world.producer.sent == []


def test_a_thread_that_stood_still_while_it_waited_for_room_sends_nothing_more() -> None:
    world, collecting = collection("at_least_once", silent=False)
    world.producer.room = 0
    world.producer.while_full = lambda: setattr(world.member, "silent", True)
    with pytest.raises(StaleGenerationError, match="the session is over"):
        to_the_end(collecting.send(frozen(), 1_000))
    assert world.producer.sent == []


def test_a_thread_that_has_nothing_to_send_may_wait_for_its_group_as_long_as_it_takes() -> None:
    _, collecting = collection("at_least_once")
    assert not collecting.collect([])


def test_under_exactly_once_kafka_itself_fences_what_is_late() -> None:
    world, collecting = collection("exactly_once_v2")
    assert collecting.collect([Task(output())])  # type: ignore[list-item]
    assert len(world.producer.sent) == 1


@pytest.mark.parametrize("parts", [DirectCollection, BufferedCollection])
def test_outputs_that_could_not_be_handed_over_are_the_tasks_again(parts: Any) -> None:
    world = World()
    clients: Any = world.clients
    world.producer.fail("send", TIMED_OUT)
    task = Task(output(), output())
    with pytest.raises(KafkaException):
        parts(world.context, clients).collect([task])
    assert task.outputs == [output(), output()]


def test_a_commit_waits_for_a_slow_kafka_as_long_as_it_takes_anything() -> None:
    """Else a commit that needs more time than one try would never be made."""
    world, collecting = collection("at_least_once", silent=False)
    world.producer.while_full = lambda: setattr(world.producer, "room", len(world.producer.sent) + 1)
    world.producer.room = 0
    assert to_the_end(collecting.send(frozen(20), 1_000))
    assert (len(world.producer.sent), world.clock.monotonic_ms()) == (20, 20_000)


def test_a_flush_waits_for_a_slow_kafka_as_long_as_it_acknowledges_anything() -> None:
    (world, collecting), left = collection("at_least_once", silent=False), [10]

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


def logging_at_the_commit() -> dict[Any, Any]:
    """A task with an output, and with a record of a store that logs at a commit."""
    return {Task(): SimpleNamespace(outputs=[emitted("out")], changelog=lambda: [emitted("log")])}


def test_at_least_once_kafka_gets_what_a_commit_logs_once_it_has_the_outputs() -> None:
    """A crash between the two would lose a result that its store has no more."""
    world, collecting = collection("at_least_once", silent=False)
    assert to_the_end(collecting.send(logging_at_the_commit(), 1_000))
    assert [sent.topic for _, sent in world.producer.sent] == ["out", "log"]
    assert world.producer.calls == ["send", "flush", "send"]


def test_what_a_commit_logs_waits_for_outputs_that_kafka_has_not() -> None:
    world, collecting = collection("at_least_once", silent=False)
    world.producer.fail("flush", RuntimeError("no broker"))
    commit = logging_at_the_commit()
    with pytest.raises(RuntimeError, match="no broker"):
        to_the_end(collecting.send(commit, 1_000))
    assert [sent.topic for _, sent in world.producer.sent] == ["out"]
    (task,) = commit
    assert not task.outputs, "the next commit makes it again, behind its own outputs"


def test_what_a_commit_logs_is_never_sent_between_commits_without_an_answer_for_the_results_before_it() -> None:
    world, collecting = collection("at_least_once", silent=False)
    world.producer.room = 0
    offered, send = list[str](), world.producer.send

    def noted(task: Any, outputs: Any, *args: Any, **options: Any) -> Any:
        offered.extend(each[TOPIC] for each in outputs)
        return send(task, outputs, *args, **options)

    world.producer.send = noted  # type: ignore[method-assign]
    commit = logging_at_the_commit()
    assert not to_the_end(collecting.send(commit, 1_000))
    assert set(offered) == {"out"}
    (task,) = commit
    assert task.outputs == [output_of(emitted("out"))]
    world.producer.room = 10
    collecting.collect([task])
    assert [sent.topic for _, sent in world.producer.sent] == ["out"]


@pytest.mark.parametrize(("guarantee", "commit"), [
    ("exactly_once_v2", logging_at_the_commit()), ("at_least_once", frozen())
])  # fmt: skip
def test_a_transaction_and_a_commit_that_logs_nothing_wait_for_no_outputs(guarantee: str, commit: Any) -> None:
    world, collecting = collection(guarantee, silent=False)
    assert to_the_end(collecting.send(commit, 1_000))
    assert "flush" not in world.producer.calls
