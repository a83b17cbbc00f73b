"""Random rebalances, failures, pauses, hangs and deaths of updaters: no task is lost, none is in two places."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common.records import TaskId, TopicPartition
from tests.milestones.disturber import Disturber
from tests.milestones.fakes import CHANGELOG
from tests.milestones.stepped import RunningUpdater

TASKS = [TaskId(0, partition) for partition in range(4)]


class UpdaterDisturber(Disturber):
    """Does that to the updater too."""

    r: RunningUpdater

    def __init__(self, r: RunningUpdater, seed: int) -> None:
        super().__init__(r, seed)
        self.actions += [self.rebalance, self.hang, self.hang, self.kill]

    def hang(self) -> None:
        for updater in self.r.world.updaters.all[-1:]:
            updater.hangs = not updater.hangs

    def kill(self) -> None:
        if not any(isinstance(scripted, Exception) for scripted in self.world.restorer.next):
            self.world.clock.advance(60_000)  # so that the deaths are no series
            self.world.restorer.next.append(RuntimeError("a bug"))

    def calm(self) -> None:
        super().calm()
        self.world.restorer.next.clear()
        for updater in self.r.world.updaters.all:
            updater.hangs = False


def places(tasks: Any) -> dict[TaskId, list[str]]:
    """Where each task is that is open, or in transit; one that waits for its other role, and stores, too."""
    found: dict[TaskId, list[str]] = {}
    for name in ("_positioning", "_restoring", "_starting", "processing", "_standbys", "_leaving"):
        for id in getattr(tasks, name):
            found.setdefault(id, []).append(name)
    for id, pending in tasks._waiting.items():
        if pending.opened is not None:
            found.setdefault(id, []).append("recycled")
    return found


@pytest.mark.parametrize("seed", range(12))
def test_every_task_is_in_one_place_and_nothing_is_left_open(seed: int) -> None:
    r = RunningUpdater()
    world, disturber = r.world, UpdaterDisturber(r, seed)
    r.rebalance()
    for _ in range(300):
        disturber.once()
        r.step(ms=disturber.rng.randrange(60))
        where = places(r.tasks)
        assert all(len(names) == 1 for names in where.values()), where
        gone = {id for id, names in where.items() if names == ["_leaving"]}
        assert where.keys() - gone <= world.state.held <= where.keys()  # one that is closed may be on its way back
        away = {id for id, (name,) in where.items() if name in ("_restoring", "_standbys", "_leaving")}
        assert r.loop._restoration._pending.keys() <= away
        fed = {TopicPartition("in", id.partition) for id, names in where.items() if names == ["processing"]}
        assert world.consumer.assigned == fed
    disturber.calm()
    r.rebalance(0, 1, 2, 3)
    r.step(30, ms=100)
    assert places(r.tasks) == {id: ["processing"] for id in TASKS}
    disturber.calm()
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert world.state.held == set()
    assert world.restorer.assigned <= {TopicPartition(CHANGELOG, id.partition) for id in TASKS}
