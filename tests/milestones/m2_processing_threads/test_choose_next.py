"""Which task is next, and that none waits longer than the bound."""

from __future__ import annotations

import random

import pytest

from milestones.common.testing.clock import StepClock
from milestones.m2_processing_threads.scheduled_task import Lease
from milestones.m2_processing_threads.scheduler import SLICE_MS, Scheduler
from tests.milestones.m2_processing_threads.choice import Waiting, choose
from tests.milestones.work import Work


def test_the_task_with_most_to_do_is_next_while_nobody_has_waited_for_long() -> None:
    waiting = [Waiting(100, 5), Waiting(100, 50), Waiting(100, 7)]
    assert choose(waiting, 100, ready=3, threads=1, slice_ms=50) == 1


def test_among_equals_who_waits_longest_is_next() -> None:
    assert choose([Waiting(90, 5), Waiting(80, 5)], 100, ready=2, threads=1, slice_ms=50) == 1


def test_one_that_would_wait_too_long_comes_before_those_with_more_to_do() -> None:
    waiting = [Waiting(900, 1_000), Waiting(0, 1), Waiting(950, 500)]
    assert choose(waiting, 1_000, ready=3, threads=1, slice_ms=50) == 1


def test_more_threads_are_more_patient() -> None:
    waiting = [Waiting(1_000, 1), Waiting(1_001, 10), Waiting(1_002, 5)]
    assert choose(waiting, 1_060, ready=3, threads=1, slice_ms=50) == 0
    assert choose(waiting, 1_060, ready=9, threads=3, slice_ms=50) == 1


class Crowd:
    """Tasks that get work at random, threads that work them off: as events in time, so that turns overlap."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = StepClock()
        self.threads = self.rng.randrange(1, 5)
        self.weights = {number: self.rng.choice([1, 1, 1, 4]) for number in range(4)}
        self.scheduler = Scheduler(
            self.clock, self.threads, 1_000, lambda id: self.weights[id.subtopology], wait=lambda *_: None
        )
        count = self.rng.randrange(1, 14)
        self.tasks = [Work(self.clock, n, record_ms=self.rng.randrange(1, SLICE_MS), sub=n % 4) for n in range(count)]
        for task in self.tasks:
            task.initialise()
            self.scheduler.add(task)  # type: ignore[arg-type]  # as far as it goes
        self.busy: list[tuple[int, Lease]] = []
        self.ready_since: dict[int, tuple[int, int]] = {}
        self.longest_ms = 0.0

    def ready(self) -> list[Work]:
        leased = {lease.task for _, lease in self.busy}
        return [task for task in self.tasks if task.waiting and task not in leased]

    def run(self, until_ms: int) -> None:
        while self.clock.monotonic_ms() < until_ms:
            if self.rng.random() < 0.3:
                task = self.rng.choice(self.tasks)
                task.waiting += self.rng.choice([1, 10, 200])
            self._note()
            self.scheduler.wake()
            while len(self.busy) < self.threads and (lease := self.scheduler.take("a thread")):
                self._taken(lease)
            self.clock.advance(1)
            for end_ms, lease in [one for one in self.busy if one[0] <= self.clock.monotonic_ms()]:
                self.busy.remove((end_ms, lease))
                self.scheduler.give_back(lease)

    def _note(self) -> None:
        """The bound grows with the most tasks that were ready while one waits."""
        now_ms, ready = self.clock.monotonic_ms(), self.ready()
        at_work = len(ready) + len(self.busy)
        for task in ready:
            since_ms, most = self.ready_since.get(task.id.partition, (now_ms, 0))
            self.ready_since[task.id.partition] = since_ms, max(most, at_work)

    def _taken(self, lease: Lease) -> None:
        now_ms, task = self.clock.monotonic_ms(), lease.task
        since_ms, most = self.ready_since.pop(task.id.partition)
        record_ms = max(one.record_ms for one in self.tasks)
        bound_ms = most * SLICE_MS / self.threads + record_ms
        assert now_ms - since_ms <= bound_ms, f"task {task.id} waited {now_ms - since_ms} ms, more than {bound_ms}"
        self.longest_ms = max(self.longest_ms, (now_ms - since_ms) / bound_ms)
        assert isinstance(task, Work)
        fitting = max(1, (lease.deadline_ms - now_ms) // task.record_ms)
        done = min(task.waiting, fitting)
        task.waiting -= done
        task.counters.processed += done
        self.busy.append((now_ms + done * task.record_ms, lease))


@pytest.mark.parametrize("seed", range(60))
def test_no_ready_task_waits_longer_than_its_share_of_slices_and_a_record(seed: int) -> None:
    crowd = Crowd(seed)
    crowd.run(until_ms=4_000)
    assert crowd.scheduler.processed > 0


def test_tasks_get_at_least_the_time_that_their_weight_gives_them_and_the_others_still_have_their_turns() -> None:
    clock = StepClock()
    scheduler = Scheduler(clock, 1, 1_000, lambda id: {0: 4}.get(id.subtopology, 1), wait=lambda *_: None)
    heavy, light = (Work(clock, 0, waiting=10**9, sub=sub) for sub in (0, 1))
    for task in (heavy, light):
        task.initialise()
        scheduler.add(task)  # type: ignore[arg-type]
    while clock.monotonic_ms() < 10_000:
        lease = scheduler.take("a thread")
        assert lease is not None
        lease.task.process(lease.deadline_ms - clock.monotonic_ms(), 0)
        scheduler.give_back(lease)
    assert 3.5 < heavy.counters.processed / light.counters.processed < 10


def test_the_example_of_ready_queue() -> None:
    others = [Waiting(960, 1), Waiting(990, 50)]
    assert [choose([Waiting(a, 1), *others], 1_000, ready=4, threads=2, slice_ms=50) for a in (900, 950)] == [0, 2]
