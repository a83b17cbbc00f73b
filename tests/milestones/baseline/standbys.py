"""A stream thread with standbys, for the tests of what it does with them."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from milestones.common.records import Output, TaskId, TopicPartition
from tests.milestones.fakes import CHANGELOG, Running, World

A, B = TaskId(0, 0), TaskId(0, 1)
IN, LOG, LOG_B = TopicPartition("in", 0), TopicPartition(CHANGELOG, 0), TopicPartition(CHANGELOG, 1)


def standby(world: World | None = None, *tasks: TaskId, active: tuple[int, ...] = (), **kinds: Any) -> Running:
    """A thread with these tasks as standbys, some rounds later."""
    r = Running(world)
    r.rebalance(*active, **{"standby": frozenset(tasks or {A}), **kinds})
    r.step(5)
    return r


def content(r: Running, task: TaskId = A, store: str = "counts") -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in r.world.state.content(task, store).items()}


def writing(world: World) -> World:
    """The world, with a producer whose outputs are in the logs; nobody reads aborted ones."""
    send, commit, abort = world.producer.send, world.producer.commit, world.producer.abort
    pending: list[tuple[TopicPartition, int]] = []

    def written(task: TaskId, outputs: Any, changelogs: Any = (), **rest: Any) -> Any:
        outputs = [Output(*output) for output in outputs]
        left = send(task, outputs, changelogs, **rest)
        for output in outputs:
            at = TopicPartition(output.topic, output.partition)
            log = world.logs[at]
            message = Message(
                topic=at.topic, partition=at.partition, offset=log.end, key=output.key, value=output.value,
                timestamp=(1, output.timestamp),
            )  # fmt: skip
            pending.append((at, len(log.entries)))
            log.entries.append(message)
        return left

    def committed(timeout_ms: int) -> None:
        commit(timeout_ms)
        pending.clear()

    def aborted(timeout_ms: int) -> None:
        abort(timeout_ms)
        for at, index in pending:
            world.logs[at].entries[index] = None

    world.producer.send, world.producer.commit, world.producer.abort = written, committed, aborted  # type: ignore[method-assign]
    return world


def stores_of(task: Any) -> Any:
    return task._stores.storage.stores
