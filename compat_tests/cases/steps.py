"""Steps that several cases share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compat_tests.containers.proxy import KafkaProxy
from compat_tests.harness.cluster import Tail
from compat_tests.harness.feed import Feed
from compat_tests.harness.instance import Instance
from compat_tests.harness.stores import identities, opened_at
from compat_tests.harness.waiting import Not
from compat_tests.harness.world import World
from compat_tests.harness.zombies import Asleep
from compat_tests.oracles.in_place import Standing
from compat_tests.oracles.rows import Place

TOLERANT = "fencing_tolerance"
"""The flag of stages on which a lost producer costs no membership."""
COMMIT_STEPS = (
    "commit.before-flush",
    "commit.after-flush",
    "commit.after-offsets",
    "commit.after-commit",
    "commit.in-apply",
    "commit.after-apply",
)
"""Where a commit may be met by a fault, in its order."""
IN_TRANSACTION = COMMIT_STEPS[:3]
"""Those at which a transaction is open, under exactly once."""


def proxy_of(world: World) -> KafkaProxy:
    """The proxy in front of the broker, of a case that is marked `broker_faults`."""
    proxy = world.broker.proxy
    assert proxy is not None
    return proxy


def generation(world: World) -> int:
    """The group's newest."""
    return world.history().generations[-1].number


def standing(world: World, instance: Instance) -> Standing:
    """What an instance is now; of its disk only files that RocksDB writes once."""
    return Standing(
        generation(world),
        len(instance.restorations()),
        identities(instance.state_dir, world.application_id),
        opened_at(instance.state_dir, world.application_id),
    )


def armed(step: str, action: str, times: int = 1, first: int = 3) -> str:
    """What makes `action` happen at a step of so many commits."""
    return ",".join(f"{step}:{action}:{first + 5 * number}" for number in range(times))


def feed_until_it_stands(world: World, feed: Feed, instance: Instance) -> None:
    """Small batches of input until a fault has stopped the instance (SIGSTOP)."""

    def stands() -> object:
        if instance.standing:
            return True
        instance.must_live()
        feed.send(world.records(40, keys=50))
        return Not(f"{instance.name} goes on after {len(feed.rows)} inputs")

    world.wait(stands, "the fault stops the process")


def feed_until_it_dies(world: World, feed: Feed, instance: Instance) -> None:
    """Small batches of input, so that there is always something to commit, until a fault has killed the instance."""

    def fed_to_death() -> object:
        if not instance.running:
            return True
        feed.send(world.records(40, keys=50))
        return Not(f"{instance.name} lives after {len(feed.rows)} inputs")

    world.wait(fed_to_death, "the fault strikes")
    instance.dies(-9)


@contextmanager
def asleep(world: World, sleeper: Instance) -> Iterator[Asleep]:
    """SIGSTOP for as long as the block lasts. What the sleeper had in work is known once that is over; under exactly
    once nobody asks."""
    members = world.cluster.members(world.application_id)
    its = [place for name, assigned in members.items() if name.startswith(sleeper.name) for place in assigned]
    sleeper.pause()  # before anything else is asked, so that it stops at work
    committed = {} if world.exactly_once else {place: at for place, at in world.committed().items() if place in its}
    woke: dict[Place, int] = {}
    yield Asleep(committed, world.cluster.ends(its), woke)
    woke.update(world.cluster.ends(its))
    sleeper.resume()


def await_outputs(world: World, tail: Tail, count: int) -> None:
    """Wait until so many committed outputs are there."""

    def enough() -> object:
        found = tail.poll()
        return found >= count or Not(f"{found} outputs")

    world.wait(enough, f"{count} outputs in {world.topic('out')}")
