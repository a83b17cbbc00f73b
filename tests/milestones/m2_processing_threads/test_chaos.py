"""Thousands of interleavings of take, process, fail, commit, flush, revoke, roll back, pause, close, by seed.

Each thread is a state machine that takes one small step at a time, in an order that the seed decides: any of them may
be in the midst of a record while the others, and the stream thread, do whatever comes to their minds.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from milestones.common.errors import StateError
from milestones.common.records import TaskId
from milestones.common.task.lifecycle import TaskState
from milestones.common.testing.clock import StepClock
from milestones.m2_processing_threads.scheduled_task import Job, Lease, SchedulerPlace
from milestones.m2_processing_threads.scheduler import Scheduler
from milestones.parts import CloseMode, RemovedTask
from tests.milestones.m2_processing_threads.failures import final_failure
from tests.milestones.work import PAUSE_MS, Work, room_of
from tests.noted import noted

TASKS, THREADS, STEPS = 6, 3, 150
TIMEOUT_MS = 2_000


class Hand:
    """A processing thread, step by step: takes a lease, works on it for a while, gives it back."""

    def __init__(self, chaos: Chaos, number: int) -> None:
        self.chaos, self.name = chaos, f"hand {number}"
        self.lease: Lease | None = None
        self.epoch = 0

    def step(self) -> None:
        scheduler, rng = self.chaos.scheduler, self.chaos.rng
        if self.lease is None:
            self.lease = scheduler.take(self.name)
            if self.lease is not None:
                self._begin(self.lease)
            else:
                scheduler.sleep()
            return
        lease: Any = self.lease
        if lease.job is Job.TURN and not lease.stop and rng.random() < 0.7:
            self._record(lease)
            return
        self.lease = None
        task, removed, error = lease.task, None, None
        if rng.random() < 0.1:
            error = rng.choice([ValueError("user code"), StateError("a disk")])
        elif lease.job is Job.APPLY:
            self._apply(lease)
        elif lease.job is Job.FLUSH:
            task.flush()
        elif lease.job is Job.LEAVE:
            removed = self._retire(lease)
        elif rng.random() < 0.2:
            lease.full, task.bytes = True, 1_000
        if lease.job is Job.LEAVE and removed is None and not lease.pause_ms:
            removed = self._retire(lease)
        self._end(task)
        scheduler.give_back(lease, error, removed)

    def _apply(self, lease: Any) -> bool:
        """What is confirmed is written, or the engine is busy for some time."""
        if lease.task.applying and self.chaos.rng.random() < 0.3:
            lease.pause_ms = PAUSE_MS
            self.chaos.again_ms[lease.task] = self.chaos.clock.monotonic_ms() + PAUSE_MS
            return False
        lease.task.apply()
        return True

    def _begin(self, lease: Any) -> None:
        task = lease.task
        again_ms = self.chaos.again_ms.pop(task, 0)
        assert self.chaos.clock.monotonic_ms() >= again_ms, "its engine is busy"
        assert task not in self.chaos.at_work, "two threads have the same task"
        assert task.id.subtopology not in self.chaos.paused or lease.job is not Job.TURN, "a paused task has a turn"
        self.chaos.at_work.add(task)
        self.epoch = task.epoch
        if lease.job is Job.TURN:
            task.initialise()
            task.lifecycle.move(TaskState.RUNNING)

    def _end(self, task: Any) -> None:
        self.chaos.at_work.remove(task)
        if task.state is TaskState.RUNNING:
            task.lifecycle.move(TaskState.READY)

    def _record(self, lease: Any) -> None:
        task = lease.task
        if task.waiting and task.epoch == self.epoch:
            task.waiting -= 1
            task.counters.processed += 1
            task.unflushed = task.cached

    def _retire(self, lease: Any) -> RemovedTask | None:
        task = lease.task
        if not self._apply(lease):
            return None
        suspended = lease.scheduled.close_mode is CloseMode.SUSPEND
        return RemovedTask(task, None if suspended else task.recycle())


class Chaos:
    """A stream thread that does anything, and its threads. `here`: the tasks that the scheduler has; `away`: those that
    were asked back, each with its fate; `again_ms`: until when the engines of tasks are busy."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = StepClock()
        self.scheduler = Scheduler(
            self.clock, THREADS, TIMEOUT_MS, room=room_of(4_000), wait=lambda *_: None
        )
        self.hands = [Hand(self, number) for number in range(THREADS)]
        self.at_work: set[Any] = set()
        self.again_ms: dict[Any, int] = {}
        self.paused: frozenset[int] = frozenset()
        self.here: dict[TaskId, Any] = {}
        self.away: list[tuple[Any, CloseMode]] = []
        self.kept: list[Any] = []
        self.made = 0
        self.committing: list[Any] = []

    # -- what the stream thread does

    def add(self) -> None:
        if self.kept and self.rng.random() < 0.5:
            task = self.kept.pop()
        else:
            task = Work(self.clock, self.made, sub=self.made % 2)
            task.cached = self.rng.random() < 0.4
            self.made += 1
        if len(self.here) < TASKS:
            self.here[task.id] = task
            self.scheduler.add(task)
        else:
            self.kept.append(task)

    def feed(self) -> None:
        for task in self.here.values():
            if self.rng.random() < 0.5:
                task.waiting += self.rng.randrange(20)

    def revoke(self) -> None:
        if self.here:
            task = self.here.pop(self.rng.choice(sorted(self.here)))
            close_mode = self.rng.choice(list(CloseMode))
            epoch = task.epoch
            self.away.append((task, close_mode))
            self.scheduler.remove(task.id, close_mode)
            assert task.epoch > epoch, "what it does from now on must be void"

    def roll_back(self) -> None:
        while self.here:
            _, task = self.here.popitem()
            self.away.append((task, CloseMode.SUSPEND))
            self.scheduler.remove(task.id, CloseMode.SUSPEND)

    def retire(self) -> None:
        if self.kept:
            task = self.kept.pop()
            self.away.append((task, CloseMode.CLOSE))
            self.scheduler.retire(task, CloseMode.CLOSE)

    def take_removed(self) -> None:
        for removed in self.scheduler.take_removed():
            task: Any = removed.task
            (close_mode,) = [close_mode for other, close_mode in self.away if other is task]
            self.away.remove((task, close_mode))
            assert not task.applying, "it has come back, and what was confirmed isn't applied"
            assert task not in self.at_work, "it has come back, and somebody works on it"
            assert (task.state is TaskState.CLOSED) == (close_mode is not CloseMode.SUSPEND)
            assert (removed.stores is not None) == (close_mode is CloseMode.CLOSE)
            if close_mode is CloseMode.SUSPEND:
                assert task.state in (TaskState.READY, TaskState.RESTORING)
                self.kept.append(task)

    def commit(self) -> None:
        """Prepare; freeze what may be; confirm it at once, or not at all."""
        self.scheduler.flush()
        if self.rng.random() < 0.5:
            return
        frozen = [t for t in self.here.values() if t.initialised and not t.applying and not t.unflushed]
        for task in frozen if self.rng.random() < 0.8 else []:
            task.applying = True
            self.scheduler.apply(task.id)
        self.scheduler.unlock()

    def pause(self) -> None:
        self.paused = frozenset(self.rng.sample([0, 1], self.rng.randrange(3)))
        self.scheduler.pause(self.paused)

    def pass_time(self) -> None:
        self.clock.advance(self.rng.choice([1, 10, 100, 1_000, 20_000]))
        self.scheduler.wake()

    def send(self) -> None:
        for task in self.here.values():
            task.bytes = 0
        self.scheduler.wake()

    def fail(self) -> None:
        failure = final_failure(self.scheduler)
        if failure is not None:
            self.roll_back()

    def once(self) -> None:
        everything = [self.add, self.feed, self.feed, self.revoke, self.retire, self.take_removed, self.commit,
                      self.commit, self.pause, self.pass_time, self.send, self.fail]  # fmt: skip
        if self.rng.random() < 0.02:
            self.roll_back()
        self.rng.choice(everything)()

    # -- what must hold

    def check(self) -> None:
        leased = {hand.lease.task: hand.lease for hand in self.hands if hand.lease is not None}
        places = self.scheduler.places()
        assert places.keys() == self.here.keys()
        for id, task in self.here.items():
            assert (places[id] is SchedulerPlace.LEASED) == (task in leased), f"{id}: a lease has leaked"
            if places[id] is SchedulerPlace.LOCKED:
                assert not task.unflushed, "locked for a commit, and not flushed"
        transit = sum(1 for task, _ in self.away)
        assert self.scheduler._in_transit + len(self.scheduler._removed) == transit, "lost, or given back twice"

    def settle(self) -> None:
        """Everything is asked back; after that, nothing may be left anywhere."""
        self.scheduler.pause(frozenset())
        self.paused = frozenset()
        for task in list(self.here.values()):
            del self.here[task.id]
            self.away.append((task, CloseMode.CLOSE))
            self.scheduler.remove(task.id, CloseMode.CLOSE)
        for _ in range(200):
            self.clock.advance(PAUSE_MS)
            for hand in self.hands:
                hand.step()
            self.take_removed()
        assert (self.away, self.at_work, list(self.scheduler._leaving)) == ([], set(), [])
        assert self.scheduler.close(0)


def play(kind: type[Chaos], seeds: range) -> None:
    for seed in seeds:
        chaos = kind(seed)
        with noted(f"seed {seed}"):
            for _ in range(STEPS):
                actor = chaos.rng.choice([*chaos.hands, None])
                chaos.once() if actor is None else actor.step()
                chaos.check()
        chaos.settle()


@pytest.mark.parametrize("hundred", range(20))
def test_a_task_is_in_one_place_no_lease_leaks_and_all_comes_back_once(hundred: int) -> None:
    play(Chaos, range(hundred * 100, (hundred + 1) * 100))
