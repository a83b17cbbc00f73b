"""Input that came is seen by the next look, whatever threads take meanwhile."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Message

from milestones.common.records import TaskId, TopicPartition
from milestones.common.task.boundary import Boundary
from milestones.common.task.input import TaskInput
from milestones.m2_processing_threads.arrivals import Arrivals

A, B = TaskId(0, 0), TaskId(0, 1)


def task(id: TaskId, *topics: str) -> Any:
    partitions = [TopicPartition(topic, id.partition) for topic in topics or ["in"]]
    return SimpleNamespace(id=id, input=TaskInput(partitions, Boundary()))


def feed(task: Any, count: int = 1, topic: str = "in") -> None:
    task.input.add(TopicPartition(topic, task.id.partition), [message() for _ in range(count)])


def message() -> Message:
    return Message(topic="in", partition=0, offset=0, key=None, value=b"", timestamp=(1, 0))


def drain(task: Any) -> None:
    for buffer in task.input.buffers.values():
        buffer.messages.clear()


def of(*tasks: Any) -> Arrivals:
    arrivals = Arrivals()
    for task in tasks:
        arrivals.add(task)
    return arrivals


def test_tasks_that_got_input_are_told_once() -> None:
    one, other = task(A), task(B, "in", "more")
    arrivals = of(one, other)
    feed(other, topic="more")
    assert (arrivals.look(), arrivals.look()) == ({B}, set())
    feed(one)
    feed(other)
    assert (arrivals.look(), arrivals.look()) == ({A, B}, set())


def test_as_many_as_were_taken_are_seen_too() -> None:
    one = task(A)
    arrivals = of(one)
    for _ in range(3):
        feed(one, 5)
        assert arrivals.look() == {A}
        drain(one)


def test_a_record_that_comes_again_after_the_partition_was_empty_is_seen() -> None:
    one = task(A)
    arrivals, record = of(one), message()
    for _ in range(2):
        one.input.add(TopicPartition("in", 0), [record])
        assert arrivals.look() == {A}
        drain(one)
        assert arrivals.look() == set()


def test_what_waited_before_a_task_came_is_seen() -> None:
    one = task(A)
    feed(one)
    assert of(one).look() == {A}


def test_only_tasks_with_input_are_counted() -> None:
    one, other = task(A), task(B)
    arrivals = of(one, other)
    feed(one, 3)
    arrivals.look()
    assert [(found.id, count) for found, count in arrivals.waiting()] == [(A, 3)]
    drain(one)
    assert dict(arrivals.waiting()) == {}
    feed(one)
    arrivals.look()
    assert [(found.id, count) for found, count in arrivals.waiting()] == [(A, 1)]


def test_a_task_that_left_is_seen_no_more_and_may_come_back() -> None:
    one, other = task(A), task(B)
    arrivals = of(one, other)
    feed(one)
    feed(other)
    arrivals.remove(one)
    assert arrivals.look() == {B}
    arrivals.add(one)
    assert arrivals.look() == {A}


def test_threads_that_take_records_meanwhile_hide_none() -> None:
    """Each batch is fed when the one before is gone: one that isn't seen would be waited for in vain."""
    tasks = [task(TaskId(0, number)) for number in range(50)]
    arrivals, queues = of(*tasks), [next(iter(task.input.buffers.values())).messages for task in tasks]
    told, taken, fed = threading.Semaphore(0), [0], 0
    seen: list[int] = []

    def take() -> None:
        while told.acquire(timeout=30):
            number = seen.pop()
            if number < 0:
                return
            while queues[number]:
                queues[number].popleft()
                taken[0] += 1

    taker = threading.Thread(target=take)
    taker.start()
    for number in range(2_000):
        feed(tasks[number % 50], 1 + number % 3)
        fed += 1 + number % 3
        for id in arrivals.look():
            seen.insert(0, id.partition)
            told.release()
    seen.insert(0, -1)
    told.release()
    taker.join(30)
    assert (taken[0], sum(map(len, queues))) == (fed, 0)
