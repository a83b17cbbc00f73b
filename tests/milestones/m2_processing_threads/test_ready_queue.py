"""The ready queue gives the answer of `choose`, whatever came and went before."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common.records import TaskId
from milestones.m2_processing_threads import ready_queue
from milestones.m2_processing_threads.ready_queue import ReadyQueue
from milestones.m2_processing_threads.scheduled_task import ScheduledTask
from tests.milestones.m2_processing_threads.choice import Waiting, choose

SLICE_MS = 50


def entry(number: int, load: int = 1, weight: int = 1) -> Any:
    task: Any = SimpleNamespace(id=TaskId(0, number), load=load)
    task.input = SimpleNamespace(waiting=lambda: task.load)
    return ScheduledTask(task, weight)


def named_by_choose(ready: list[Any], now_ms: int, at_work: int, threads: int) -> Any:
    """`ready`: in the order in which they became so."""
    waiting = [Waiting(one.since_ms, one.task.load * one.weight) for one in ready]
    return ready[choose(waiting, now_ms, ready=len(ready) + at_work, threads=threads, slice_ms=SLICE_MS)]


@pytest.mark.parametrize("seed", range(150))
def test_who_is_next_is_whom_choose_names_whatever_came_and_went(seed: int) -> None:
    rng = random.Random(seed)
    queue, ready, now_ms = ReadyQueue(SLICE_MS), list[Any](), 1_000
    threads, most_ms = rng.randrange(1, 9), rng.choice([1, 20, 300])
    asked = 0
    for number in range(400):
        now_ms += rng.randrange(most_ms)
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                for more in range(rng.choice([1, 1, 1, 20])):
                    one = entry(100 * number + more, rng.randrange(50), rng.choice([1, 1, 4]))
                    queue.put(one, now_ms)
                    ready.append(one)
            case 4 | 5 if ready:
                one = rng.choice(ready)
                one.task.load += rng.randrange(100)
                queue.put(one, now_ms)
            case 6 if ready:
                gone = ready.pop(rng.randrange(len(ready)))
                queue.discard(gone)
                queue.discard(gone)
            case 7 if rng.random() < 0.1:
                threads = rng.randrange(1, 9)
            case _:
                at_work = rng.randrange(threads)
                chosen = queue.choose(now_ms, at_work, threads)
                if ready:
                    assert chosen is named_by_choose(ready, now_ms, at_work, threads)
                    asked += 1
                    queue.discard(chosen)
                    ready.remove(chosen)
                assert (chosen is None, len(queue)) == (not ready and chosen is None, len(ready))
    assert asked > 50


def test_a_task_that_becomes_ready_again_waits_anew() -> None:
    queue, one, other = ReadyQueue(SLICE_MS), entry(0), entry(1)
    queue.put(one, 0)
    queue.put(other, 10)
    queue.discard(one)
    queue.put(one, 20)
    assert (one.since_ms, queue.choose(20, 0, 1)) == (20, other)


def test_what_a_task_had_to_do_before_isnt_kept_for_ever() -> None:
    queue, one = ReadyQueue(SLICE_MS), entry(0)
    for load in range(10_000):
        one.task.load = load
        queue.put(one, 0)
    assert len(queue._loads) < 100
    assert queue.choose(0, 0, 1) is one


def test_five_hundred_ready_tasks_are_gone_through_seldom_while_turns_are_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tightest = Mock(wraps=ready_queue.tightest)
    monkeypatch.setattr(ready_queue, "tightest", tightest)
    queue, leases = ReadyQueue(SLICE_MS), 5_000
    for number in range(512):
        queue.put(entry(number, load=number), 0)
    for lease in range(leases):
        chosen: Any = queue.choose(lease // 10, 3, 4)
        queue.discard(chosen)
        queue.put(chosen, lease // 10)
    assert 0 < tightest.call_count < leases // 20
