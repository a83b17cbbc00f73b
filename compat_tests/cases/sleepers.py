"""Processes that stand still until their group has given them up, and what they had in work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from compat_tests.cases.flows import COUNT
from compat_tests.cases.steps import feed_until_it_stands
from compat_tests.harness.feed import Sent
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.rows import Place, origin_of
from compat_tests.oracles.zombies import Asleep
from milestones.testing import NotYet

QUEUED = 200
BRIEF = {"producer_queue_buffering_max_messages": QUEUED}
"""A client that takes few records at once."""
BLOCK = 20
"""Records of one key."""


def in_blocks(records: list[Sent], name: bytes = b"k") -> list[Sent]:
    """The records with other keys: each has some that follow one another, so that a key says when it was sent."""
    return [sent._replace(key=b"%s%d" % (name, number // BLOCK)) for number, sent in enumerate(records)]


@contextmanager
def asleep(world: World, sleeper: Instance) -> Iterator[Asleep]:
    """SIGSTOP for as long as the block lasts. What the sleeper had in work is known once that is over; under exactly
    once nobody asks. A sleeper that was started with `BRIEF` had handed its client little more than what is there."""
    its = world.inputs_of(sleeper)
    sleeper.pause()  # before anything else is asked, so that it stops at work
    committed = {} if world.exactly_once else {place: at for place, at in world.committed().items() if place in its}
    woke: dict[Place, int] = {}
    yield Asleep(committed, {} if world.exactly_once else _handed(world, its, committed), woke)
    woke.update(world.cluster.ends(its))
    sleeper.resume()


def oversleep(world: World, sleeper: Instance, other: Instance, count: int, keys: int) -> None:
    """It sleeps until the other one has its tasks and has processed more; then both process more, and are judged."""
    feed = world.feeds["in"]
    with asleep(world, sleeper) as nap:
        feed.send(in_blocks(world.records(count, keys), b"while"))
        world.group_is(other)
        world.inputs_processed()
    feed.send(in_blocks(world.records(count, keys), b"then"))
    world.group_is(sleeper, other)
    feed.send(world.records(count, keys))
    end_and_judge(world, COUNT, crashed=True, asleep=[nap])


def oversleep_at(world: World, step: str) -> None:
    """As `oversleep`, of a process that a fault has stopped at a step of a commit."""
    world.input("in", 2, out=2)
    sleeper, other = world.instance("count", "sleeper", **BRIEF), world.instance("count", "other")
    sleeper.start(fault=f"{step}:stop:4")
    feed_until_it_stands(world, sleeper)
    other.start()
    oversleep(world, sleeper, other, 500, 50)


def _handed(world: World, places: Collection[Place], committed: Mapping[Place, int]) -> dict[Place, int]:
    """Up to where a process that stands still has handed outputs to its client: no further behind those that are in
    Kafka than that one takes at once."""
    reached = {place: committed.get(place, 0) for place in places}
    for row in world.cluster.read(world.topic("out")):
        if (origin := origin_of(row)) is not None and origin.place in reached:
            reached[origin.place] = max(reached[origin.place], origin.offset + 1)
    return {place: min(end, reached[place] + QUEUED) for place, end in world.cluster.ends(places).items()}


def pause_between_transactions(world: World, sleeper: Instance) -> None:
    """SIGSTOP while nothing of anybody's is open: what is open would be aborted by its age, without any member."""
    _pause(world, sleeper, lambda: True, in_transaction=False)


def pause_in_a_transaction(world: World, sleeper: Instance, load: Callable[[], object]) -> None:
    """SIGSTOP while a transaction is open. `load`: what makes there be one."""
    _pause(world, sleeper, load, in_transaction=True)


def _pause(world: World, sleeper: Instance, load: Callable[[], object], *, in_transaction: bool) -> None:
    topics = [topic for topic in world.cluster.topics() if topic.startswith(world.application_id)]

    def paused() -> object:
        load()
        sleeper.pause()
        if bool(world.cluster.open_transactions(topics)) is in_transaction:
            return True
        sleeper.resume()
        return NotYet("a transaction is open" if not in_transaction else "no transaction is open")

    world.wait(paused, f"{sleeper.name} stands still {'in' if in_transaction else 'between'} transactions")
