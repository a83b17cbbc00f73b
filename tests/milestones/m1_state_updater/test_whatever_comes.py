"""Random rebalances, failures, pauses, hangs and deaths of updaters: no task is lost, none is in two places."""

from __future__ import annotations

import pytest

from milestones.common.records import TaskId, TopicPartition
from milestones.stream_thread.task_registry import Phase
from tests.milestones.disturber import Disturber
from tests.milestones.fakes import CHANGELOG
from tests.milestones.stepped import RunningUpdater

TASKS = [TaskId(0, partition) for partition in range(4)]


class PlannedDeath(RuntimeError):
    """What the test kills updaters with."""


class UpdaterDisturber(Disturber):
    """Does that to the updater too."""

    r: RunningUpdater

    def __init__(self, r: RunningUpdater, seed: int) -> None:
        super().__init__(r, seed)
        self.actions += [self.rebalance, self.hang, self.hang, self.kill, self.assign_meanwhile]

    def hang(self) -> None:
        for updater in self.r.world.updaters.all[-1:]:
            updater.hangs = not updater.hangs

    def assign_meanwhile(self) -> None:
        """An assignment comes before what the updater has answered is read, and what follows before it looks again."""
        for updater in self.r.world.updaters.all[-1:]:
            updater.hangs = True
        active, others = self.roles()
        self.r.assign(*active, standby=others)

    def kill(self) -> None:
        if not any(isinstance(scripted, Exception) for scripted in self.world.restorer.next):
            self.world.clock.advance(60_000)  # so that the deaths are no series
            self.world.restorer.next.append(PlannedDeath())

    def calm(self) -> None:
        super().calm()
        self.world.restorer.next.clear()
        for updater in self.r.world.updaters.all:
            updater.hangs = False


def among(where: dict[TaskId, Phase], *phases: Phase) -> set[TaskId]:
    return {id for id, phase in where.items() if phase in phases}


@pytest.mark.parametrize("seed", range(12))
def test_every_task_is_in_one_place_and_nothing_is_left_open(seed: int) -> None:
    r = RunningUpdater()
    world, disturber = r.world, UpdaterDisturber(r, seed)
    r.rebalance()
    for _ in range(300):
        disturber.once()
        r.step(ms=disturber.rng.randrange(60))
        where = r.tasks.places()
        recycled = {entry.id for entry in r.tasks._registry if entry.stores is not None}
        between = among(where, Phase.WAITING, Phase.OPENING, Phase.LEAVING)  # open, or not, or not any more
        assert where.keys() - between | recycled <= world.state.held <= where.keys()
        assert r.loop._restoration._pending.keys() <= among(where, Phase.RESTORING, Phase.STANDBY, Phase.LEAVING)
        fed = {TopicPartition("in", id.partition) for id in among(where, Phase.PROCESSING)}
        assert world.consumer.assigned == fed
        assert {type(updater.error) for updater in r.world.updaters.all} <= {type(None), PlannedDeath}
    disturber.calm()
    r.rebalance(0, 1, 2, 3)
    r.step(30, ms=100)
    assert r.tasks.places() == dict.fromkeys(TASKS, Phase.PROCESSING)
    disturber.calm()
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert world.state.held == set()
    assert world.restorer.assigned <= {TopicPartition(CHANGELOG, id.partition) for id in TASKS}
