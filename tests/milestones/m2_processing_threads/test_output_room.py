"""`OutputRoom` beside a model: whatever fifty tasks put out and whatever is sent, the room holds it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.milestones.m2_processing_threads.test_scheduler import LENT, ROOM, Shop
from tests.milestones.work import room_of

SIZE, TASKS = 1_000_000, 50


class Holder:
    """A task, as far as the room knows."""

    def __init__(self) -> None:
        self.bytes = 0

    def output_bytes(self) -> int:
        return self.bytes


def held_by(count: int = TASKS, size: int = SIZE) -> tuple[Any, list[Any]]:
    room, tasks = room_of(size), [Holder() for _ in range(count)]
    for task in tasks:
        room.add(task)  # type: ignore[arg-type]
    return room, tasks


def hold(room: Any, task: Any, count: int) -> None:
    task.bytes = count
    room.look_at(task)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("seed", range(20))
def test_fifty_tasks_that_go_as_far_as_they_may_hold_the_room_together(threads: int, seed: int) -> None:
    rng = random.Random(seed)
    room, tasks = held_by()
    for _ in range(2_000):
        at_work = rng.sample(tasks, threads)
        limits = [room.most(task, threads) for task in at_work]
        for task, limit in zip(at_work, limits, strict=True):
            if task.bytes < limit:
                task.bytes = rng.choice([limit, rng.randint(task.bytes, limit)])
        for task in at_work:
            room.look_at(task)
        assert sum(task.bytes for task in tasks) <= SIZE
        for task in rng.sample(tasks, rng.choice([0, 0, 1, 50])):  # sent, of which the room learns when it looks
            task.bytes = rng.choice([0, task.bytes // 2])
        room.look_at_all()


def test_one_task_has_three_quarters_while_the_others_hold_nothing() -> None:
    room, tasks = held_by()
    assert room.most(tasks[0], threads=1) == SIZE * 3 // 4


def test_what_is_left_is_divided_among_the_threads_that_work_beside_each_other() -> None:
    room, tasks = held_by()
    hold(room, tasks[0], SIZE // 2)
    assert [room.most(task, threads=4) for task in tasks[:2]] == [SIZE // 2 + SIZE // 16, SIZE // 16]


def test_a_task_has_its_part_of_the_last_quarter_however_much_the_others_hold() -> None:
    room, tasks = held_by()
    hold(room, tasks[0], SIZE)
    assert room.most(tasks[1], threads=1) == SIZE // 4 // TASKS


def test_what_a_task_held_is_free_once_the_task_has_left() -> None:
    room, tasks = held_by()
    hold(room, tasks[0], SIZE)
    room.remove(tasks[0])
    assert room.most(tasks[1], threads=1) == SIZE * 3 // 4


def test_what_was_sent_is_free_once_the_room_looks_at_all() -> None:
    room, tasks = held_by()
    hold(room, tasks[0], SIZE)
    tasks[0].bytes = 0
    assert room.most(tasks[1], threads=1) == SIZE // 4 // TASKS
    room.look_at_all()
    assert room.most(tasks[1], threads=1) == SIZE * 3 // 4


def test_a_full_task_has_room_again_when_half_of_the_room_is_free_or_half_of_its_part() -> None:
    room, tasks = held_by()
    part = SIZE // 4 // TASKS
    hold(room, tasks[0], SIZE // 2 + 1)
    hold(room, tasks[1], part)
    assert [room.has_room(task) for task in tasks[:2]] == [False, False]
    hold(room, tasks[1], part // 2)
    assert [room.has_room(task) for task in tasks[:2]] == [False, True]
    hold(room, tasks[1], 0)
    hold(room, tasks[0], SIZE // 2)
    assert room.has_room(tasks[0])


def test_each_of_more_tasks_than_bytes_may_put_out_a_record() -> None:
    room, tasks = held_by(size=1)
    assert {room.most(task, threads=4) for task in tasks} == {1}
    assert all(room.has_room(task) for task in tasks)


# -- as the scheduler and its workers use it

def test_a_task_without_room_for_outputs_waits_until_half_of_the_room_is_free_and_the_others_dont() -> None:
    shop = Shop({"waiting": 10_000}, {"waiting": 10})
    shop.task.bytes = LENT
    shop.work(10)
    assert [task.waiting > 0 for task in shop.tasks] == [True, False]
    assert shop.scheduler.held_back == 1
    shop.task.bytes = ROOM // 2 + 1
    shop.scheduler.wake()
    assert shop.scheduler.take("a thread") is None
    shop.task.bytes = ROOM // 2
    shop.scheduler.wake()
    assert shop.take().task is shop.task


def test_a_task_that_has_sent_half_of_its_own_part_goes_on_though_others_fill_the_room() -> None:
    shop = Shop({"waiting": 10_000}, {"waiting": 10_000}, record_bytes=0)
    for task in shop.tasks:
        task.bytes = LENT
    shop.work(10)
    assert shop.scheduler.take("a thread") is None
    shop.task.bytes = (ROOM - LENT) // 2 // 2
    shop.scheduler.wake()
    assert shop.take().task is shop.task


@pytest.mark.parametrize("kept", [0, ROOM // 2, LENT - 2_000])
def test_batches_are_as_large_as_what_is_left_of_the_room_whatever_is_kept_in_it(kept: int) -> None:
    shop = Shop({"waiting": 100_000, "record_ms": 0}, bytes=kept, record_bytes=1)
    while shop.task.bytes < LENT:
        before = shop.task.bytes
        shop.work()
        assert shop.task.bytes > before
    assert shop.task.bytes == LENT
    assert len(shop.task.limits) < 40


def test_a_batch_of_large_outputs_leaves_at_most_one_beyond_the_bound() -> None:
    shop = Shop({"waiting": 100_000}, bytes=LENT // 2, record_bytes=LENT // 7)
    shop.work(10)
    assert shop.task.bytes < LENT + 2 * shop.task.record_bytes
