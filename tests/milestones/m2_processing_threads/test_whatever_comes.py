"""Random rebalances, failures, pauses, poison and interruptions of user code: no task is lost, none is in two places,
every input counts once."""

from __future__ import annotations

import pytest

from milestones.common.errors import TaskCorruptedError
from milestones.common.records import Record, TaskId, TopicPartition
from milestones.m2_processing_threads.scheduled_task import SchedulerPlace
from milestones.stream_thread.task_registry import Phase
from tests.milestones.disturber import Disturber
from tests.milestones.fakes import put
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing

TASKS = [TaskId(0, partition) for partition in range(4)]
BY_NIGHT = [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(40, 200)]
DEPTH = 3
"""How deep interruptions go: each one may let another thread process, whose user code is interrupted too."""


class ProcessingDisturber(Disturber):
    """Does that to processing threads too, and anything in the midst of user code."""

    r: RunningProcessing
    world: ProcessingWorld

    def __init__(self, r: RunningProcessing, seed: int) -> None:
        super().__init__(r, seed)
        self.number = self.depth = 0
        quiet = [self.feed, self.work, lambda: None]
        self.actions = [*self.actions, self.corrupt, self.poison, self.stick, *(quiet * 16)]
        for action in (self.cut, r.tasks.roll_back):
            self.actions.remove(action)
        r.world.user_code.at = self.meanwhile

    def rebalance(self) -> None:
        super().rebalance()
        self.soothe()

    def soothe(self) -> None:
        """Answers come again, mostly: so that tasks come to process."""
        if self.rng.random() < 0.8:
            Disturber.calm(self)

    def feed(self) -> None:
        for _ in range(self.rng.randrange(1, 20)):
            self.number += 1
            put(self.world, self.rng.randrange(4), f"v{self.number}", key=f"k{self.rng.randrange(3)}")

    def corrupt(self) -> None:
        self.r.loop._recoveries.recover(TaskCorruptedError("a test", []), 0)

    def poison(self) -> None:
        if self.rng.random() < 0.2:
            self.world.user_code.refused = set(self.rng.sample(self.world.user_code.seen[-50:] or [""], 1))
        else:
            self.world.user_code.refused.clear()

    def work(self) -> None:
        inside, self.r.inside = self.r.inside, False
        self.world.workers.step(self.rng.randrange(4))
        self.r.inside = inside

    def stick(self) -> None:
        self.world.workers.stuck = self.rng.random() < 0.2

    def meanwhile(self, record: Record) -> None:
        """In the midst of a record: time passes, other workers work, the stream thread has a turn, anything happens."""
        self.world.clock.advance(self.rng.randrange(30))
        if self.depth >= DEPTH or self.rng.random() < 0.5:
            return
        self.depth += 1
        try:
            for _ in range(self.rng.randrange(3)):
                choice = self.rng.random()
                if choice < 0.4:
                    self.work()
                elif not self.r.inside:
                    with self.r.turn():
                        self.once() if choice < 0.6 else self.r.loop.run_once(self.world.clock.monotonic_ms())
        finally:
            self.depth -= 1

    def calm(self) -> None:
        super().calm()
        self.world.user_code.refused.clear()
        self.world.user_code.at = lambda _: None
        self.world.workers.stuck = False


def check(r: RunningProcessing) -> None:
    processing = {id for id, phase in r.tasks.places().items() if phase is Phase.PROCESSING}
    scheduler = r.loop._processing._scheduler  # type: ignore[attr-defined]
    assert scheduler.places().keys() == processing
    assert r.world.consumer.assigned == {TopicPartition("in", id.partition) for id in processing}
    working = sum(worker.inside for worker in r.world.workers.all)
    leased = [
        scheduled for scheduled in (*scheduler._scheduled.values(), *scheduler._leaving) if scheduled.lease is not None
    ]
    assert len(leased) <= working, "a lease has leaked"


def expected(world: ProcessingWorld, partition: int) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    expected = []
    for message in world.logs[TopicPartition("in", partition)].entries:
        assert message is not None
        key = message.key().decode()  # type: ignore[union-attr]
        counts[key] = counts.get(key, 0) + 1
        expected.append((key, counts[key]))
    return expected


def disturb(world: ProcessingWorld, seed: int) -> None:
    """Have anything happen, then calm; check in between, and how it ends."""
    r = RunningProcessing(world)
    disturber = ProcessingDisturber(r, seed)
    r.rebalance()
    for _ in range(400):
        with r.turn():
            disturber.once()
        r.step(ms=disturber.rng.randrange(60))
        check(r)
    disturber.calm()
    r.rebalance(0, 1, 2, 3)
    r.step(60, ms=100)
    assert r.tasks.places() == dict.fromkeys(TASKS, Phase.PROCESSING)
    assert set(r.loop._processing._scheduler.places().values()) == {SchedulerPlace.IDLE}  # type: ignore[attr-defined]
    disturber.calm()
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert world.state.held == set()


@pytest.mark.parametrize("seed", [*range(40), *BY_NIGHT])
def test_every_task_is_in_one_place_and_every_input_counts_once(seed: int) -> None:
    world = ProcessingWorld(num_processing_threads=1 + seed % 4, commit_interval_ms=50)
    disturb(world, seed)
    for partition in range(4):
        assert world.written(partition) == expected(world, partition)


@pytest.mark.parametrize("seed", range(20))
def test_with_a_cache_every_input_counts_once_and_no_count_goes_back(seed: int) -> None:
    world = ProcessingWorld(
        cached=True,
        statestore_cache_max_bytes=10_000_000 if seed % 3 else 500,
        num_processing_threads=1 + seed % 4,
        commit_interval_ms=50,
    )
    disturb(world, seed)
    for partition in range(4):
        counts = world.written(partition)
        assert dict(counts) == dict(expected(world, partition))
        for key in dict(counts):
            of_key = [count for other, count in counts if other == key]
            assert of_key == sorted(set(of_key))
