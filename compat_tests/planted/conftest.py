"""A world for an application on a broken runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
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


def judged(
    world: World, flow: Flow = COUNT, *, crashed: bool = False, repartition: str = "", asleep: Collection[Asleep] = ()
) -> set[str]:
    """The kinds of what the judgement finds."""
    try:
        judge(world, flow, crashed=crashed, repartitions=[repartition] if repartition else [], asleep=asleep)
    except PromiseBrokenError as broken:
        return kinds(broken.findings)
    return set()


class BrokenWorld:
    """A world of one mutation. Its instances run on the mutated runtime."""

    def __init__(self, world: World, mutation: str) -> None:
        self.world, self.mutation = world, mutation

    def instance(self, topology: str, name: str = "one", **config: Any) -> Instance:
        """An instance on the mutated runtime, not started yet."""
        instance = self.world.instance(topology, name, num_stream_threads=1, **config)
        instance.entry = ("compat_tests.planted.mutated", self.mutation)
        return instance


Break = Callable[..., BrokenWorld]
"""(mutation, guarantee) -> the world"""


@pytest.fixture
def broken(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> Iterator[Break]:
    """Makes the test's world, of the last stage asked for: it is the judgement that is tested, so one is enough."""
    stage = stages(request.config)[-1]
    with ExitStack() as worlds:

        def make(mutation: str, guarantee: str = ALO) -> BrokenWorld:
            seed = request.config.option.seed
            made = new_world(broker, f"test_{mutation}", stage, guarantee, seed, tmp_path)
            request.node.world = worlds.enter_context(made)
            return BrokenWorld(request.node.world, mutation)

        yield make
