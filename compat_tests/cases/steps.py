"""Steps that several cases share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from compat_tests.containers.proxy import KafkaProxy
from compat_tests.harness.cluster import Tail
from compat_tests.harness.feed import Feed, Sent
from compat_tests.harness.instance import Instance
from compat_tests.harness.stores import identities, opened_at
from compat_tests.harness.waiting import Not
from compat_tests.harness.world import World
from compat_tests.oracles.in_place import Standing
from compat_tests.oracles.rows import Place, origin_of
from compat_tests.oracles.transactions import none_timed_out
from compat_tests.oracles.zombies import Asleep

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
TRANSACTION_MS = 1_500
PATIENT = {"transaction_timeout_ms": TRANSACTION_MS, "commit_interval_ms": 500, "session_timeout_ms": 60_000}
"""Transactions that end long before the session does. Several batches are sent before each commit."""
TIDY = {"state_cleanup_delay_ms": 500, "repartition_purge_interval_ms": 200}
"""What isn't needed any more is deleted at once: state of tasks that have gone, records that were processed."""
QUEUED = 200
BRIEF = {"producer_queue_buffering_max_messages": QUEUED}
"""A client that takes few records at once."""
BLOCK = 20
"""Records of one key."""
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


@dataclass
class Crash:
    """What lay in Kafka when a process died."""

    history_end: int
    inputs: Counter[Place] = field(default_factory=Counter)


def crash(world: World) -> Crash:
    return Crash(world.history_end(), Counter(row.place for row in world.feeds["in"].rows))


def uncommitted_tail(world: World, crash: Crash) -> Counter[str]:
    """By task, the changelog records that a disk may have lacked at the crash: those of the last commit; at least once
    those of inputs behind it, too. A count logs each of its inputs once."""
    commits: dict[Place, list[int]] = {}
    for place, offset in world.history(crash.history_end).commits:
        commits.setdefault(place, [0]).append(offset)
    tail = Counter[str]()
    for place, inputs in crash.inputs.items():
        known = [0, *commits.get(place, [0])]
        tail[f"0_{place.partition}"] = (known[-1] if world.exactly_once else inputs) - known[-2]
    return tail


def await_timed_out(world: World, count: int) -> None:
    """Let the time of a transaction of `PATIENT` pass, and wait until Kafka has aborted so many because of it."""
    over = time.monotonic() + TRANSACTION_MS / 1000

    def timed_out() -> object:
        found = len(none_timed_out(world.transactions()))
        return (found >= count and time.monotonic() > over) or Not(f"{found} of {count} have timed out")

    world.wait(timed_out, "Kafka aborts the transaction that is too old")


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


def in_blocks(records: list[Sent], name: bytes = b"k") -> list[Sent]:
    """The records with other keys: each has some that follow one another, so that a key says when it was sent."""
    return [sent._replace(key=b"%s%d" % (name, number // BLOCK)) for number, sent in enumerate(records)]


@contextmanager
def asleep(world: World, sleeper: Instance) -> Iterator[Asleep]:
    """SIGSTOP for as long as the block lasts. What the sleeper had in work is known once that is over; under exactly
    once nobody asks. A sleeper that was started with `BRIEF` had handed its client little more than what is there."""
    members = world.cluster.members(world.application_id)
    its = [place for name, assigned in members.items() if name.startswith(sleeper.name) for place in assigned]
    sleeper.pause()  # before anything else is asked, so that it stops at work
    committed = {} if world.exactly_once else {place: at for place, at in world.committed().items() if place in its}
    woke: dict[Place, int] = {}
    yield Asleep(committed, {} if world.exactly_once else _handed(world, its, committed), woke)
    woke.update(world.cluster.ends(its))
    sleeper.resume()


def _handed(world: World, places: Collection[Place], committed: Mapping[Place, int]) -> dict[Place, int]:
    """Up to where a process that stands still has handed outputs to its client: no further behind those that are in
    Kafka than that one takes at once."""
    reached = {place: committed.get(place, 0) for place in places}
    for row in world.cluster.read([world.topic("out")]):
        if (origin := origin_of(row)) is not None and origin.place in reached:
            reached[origin.place] = max(reached[origin.place], origin.offset + 1)
    return {place: min(end, reached[place] + QUEUED) for place, end in world.cluster.ends(places).items()}


def await_outputs(world: World, tail: Tail, count: int) -> None:
    """Wait until so many committed outputs are there."""

    def enough() -> object:
        found = tail.poll()
        return found >= count or Not(f"{found} outputs")

    world.wait(enough, f"{count} outputs in {world.topic('out')}")
