"""Steps that several cases share."""

from __future__ import annotations

from compat_tests.harness.cluster import Tail
from compat_tests.harness.feed import Feed
from compat_tests.harness.instance import Instance
from compat_tests.harness.waiting import Not
from compat_tests.harness.world import World


def feed_until_it_dies(world: World, feed: Feed, instance: Instance) -> None:
    """Small batches of input, so that there is always something to commit, until a fault has killed the instance."""

    def fed_to_death() -> object:
        if not instance.running:
            return True
        feed.send(world.records(40, keys=50))
        return Not(f"{instance.name} lives after {len(feed.rows)} inputs")

    world.wait(fed_to_death, "the fault strikes")
    instance.dies(-9)


def await_outputs(world: World, tail: Tail, count: int) -> None:
    """Wait until so many committed outputs are there."""

    def enough() -> object:
        found = tail.poll()
        return found >= count or Not(f"{found} outputs")

    world.wait(enough, f"{count} outputs in {world.topic('out')}")
