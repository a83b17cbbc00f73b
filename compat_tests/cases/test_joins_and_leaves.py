"""Instances that join, leave, are killed and stand still at random, under load, with standbys: nothing shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.cases.steps import TIDY
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

CHANGES = 20
NAMES = "abcd"
FEWEST = 2
KINDS = ("join", "leave", "kill", "pause")


class Group:
    """Up to four instances, at least two of which run while one is changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        settings = {"num_standby_replicas": 1, "acceptable_recovery_lag": 50, "num_stream_threads": 2, **TIDY}
        self.all = [world.instance("count-by-value", name, **settings) for name in NAMES]
        self._changes: dict[str, Callable[[Instance], object]] = {
            "join": Instance.start,
            "leave": Instance.stop,
            "kill": Instance.kill,
            "pause": self._pause,
        }

    @property
    def running(self) -> list[Instance]:
        return [one for one in self.all if one.running]

    def load(self) -> None:
        self._world.feeds["in"].send(self._world.groups(200, 300, 500))

    def change(self) -> str:
        """Something happens to somebody; what."""
        rng, resting = self._world.rng, [one for one in self.all if not one.running]
        possible = [kind for kind in KINDS if (resting if kind == "join" else len(self.running) > FEWEST)]
        kind = rng.choice(possible)
        one = rng.choice(resting if kind == "join" else self.running)
        self._changes[kind](one)
        return f"{kind} {one.name}"

    def _pause(self, one: Instance) -> None:
        """SIGSTOP, until its group goes on without it."""
        one.pause()
        self._world.gives_up(one, self.load)
        one.resume()

    def go_on(self) -> None:
        """Load for a while, sometimes until everybody is back."""
        for _ in range(self._world.rng.randrange(1, 15)):
            self.load()
        if self._world.rng.random() < 0.5:
            self._world.group_is(*self.running)


@pytest.mark.full
def test_a_group_whose_instances_come_and_go_at_random_loses_nothing(world: World) -> None:
    world.input("in", 6, out=4)
    group = Group(world)
    group.load()
    for one in group.all[:3]:
        one.start()
    world.group_is(*group.all[:3])
    changes = []
    for _ in range(CHANGES):
        changes.append(group.change())
        group.go_on()
    print(", ".join(changes))
    end_and_judge(world, COUNT_BY_VALUE, crashed=True, zombies=True, repartitions=[BY_VALUE_REPARTITION])
