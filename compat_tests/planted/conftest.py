"""A world for an application on a broken runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compat_tests import ALO
from compat_tests.cases.flows import COUNT
from compat_tests.conftest import stages
from compat_tests.harness.brokers import Broker
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import judge
from compat_tests.harness.world import World, new_world
from compat_tests.oracles.findings import PromiseBrokenError, kinds
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.zombies import Asleep
from compat_tests.planted.mutated import NOTHING


def judged(
    world: World, flow: Flow = COUNT, *, crashed: bool = False, repartition: str = "", asleep: Collection[Asleep] = ()
) -> set[str]:
    """The kinds of what the judgement finds."""
    try:
        judge(world, flow, crashed=crashed, repartitions=[repartition] if repartition else [], asleep=asleep)
    except PromiseBrokenError as broken:
        return kinds(broken.findings)
    return set()


@dataclass
class BrokenWorld(World):
    """A world of one mutation. Its instances run on the mutated runtime; those of `World.instance` don't."""

    mutation: str = NOTHING

    def instance(self, topology: str, name: str = "one", **config: Any) -> Instance:
        made = super().instance(topology, name, **{"num_stream_threads": 1, **config})
        made.entry = ("compat_tests.planted.mutated", self.mutation)
        return made


Break = Callable[..., World]
"""(mutation, guarantee, the flag of the stages that have what it breaks) -> the world, with an input"""


@pytest.fixture
def broken(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> Iterator[Break]:
    """Makes the test's world, of the last stage asked for: it is the judgement that is tested, so one is enough."""
    stage = stages(request.config)[-1]
    with ExitStack() as worlds:

        def make(mutation: str, guarantee: str = ALO, needs: str | None = None) -> World:
            seed, kind = request.config.option.seed, partial(BrokenWorld, mutation=mutation)
            made = new_world(broker, f"test_{mutation}", stage, guarantee, seed, tmp_path, kind)
            world: World = worlds.enter_context(made)
            request.node.world = world
            if needs and not world.has(needs):
                pytest.skip(f"what is broken belongs to {needs}")
            world.input("in", 2, out=2)
            return world

        yield make
