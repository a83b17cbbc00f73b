"""Steps that several cases share."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.stores import dumps, identities, opened_at
from compat_tests.harness.world import World
from compat_tests.network.faults import Side
from compat_tests.network.frames import Api
from compat_tests.network.proxy import KafkaProxy
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import Standing, no_more_than
from compat_tests.oracles.placement import partition_of
from compat_tests.oracles.rows import Origin, Place, Row, origin_of
from compat_tests.oracles.transactions import none_timed_out
from milestones.testing import NotYet, TopicTail

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
ENDING, NEXT = "commit.ending", "interval.first-record"
"""Where the next interval counts: the request that commits is on its way; the first outputs of what follows are taken.
"""
TRANSACTION_MS = 1_500
PATIENT: Settings = {"transaction_timeout_ms": TRANSACTION_MS, "commit_interval_ms": 500, "session_timeout_ms": 60_000}
"""Transactions that end long before the session does. Several batches are sent before each commit."""
STAYS: Settings = {"session_timeout_ms": 240_000, "task_timeout_ms": 240_000, "max_poll_interval_ms": 960_000}
"""For the time that a broker takes to be back: a recovery has a quarter of `max_poll_interval_ms` at most, then the
tasks of a commit whose end isn't known are given up (docs/fencing.md)."""
AT_ONCE: Settings = {"state_write_interval_ms": 0}
"""Each commit is written to the disk at once: a crash costs one of them at most."""
TIDY = {"state_cleanup_delay_ms": 500, "repartition_purge_interval_ms": 200}
"""What isn't needed any more is deleted at once: state of tasks that have gone, records that were processed."""
LATE_ENDS = 3
IN_TRANSACTION = COMMIT_STEPS[:3]
"""Those at which a transaction is open, under exactly once."""


def commit_steps_of(*short: str) -> list[object]:
    """The steps, as parameters; those of the short selection are named."""
    return [step if step in short else pytest.param(step, marks=pytest.mark.full) for step in COMMIT_STEPS]


def under(guarantee: str, *values: object) -> object:
    """Parameters that the short selection runs under this guarantee only."""
    return pytest.param(*values, marks=pytest.mark.short_under(guarantee))


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
    """What lay in Kafka when a process died. `inputs`: the keys, by partition, in order."""

    history_end: int
    inputs: defaultdict[Place, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))


def crash(world: World) -> Crash:
    found = Crash(world.history_end())
    for row in sorted(world.feeds["in"].rows, key=lambda row: row.offset):
        found.inputs[row.place].append(row.key)
    return found


def uncommitted_tail(world: World, crash: Crash) -> Counter[str]:
    """By task, how many changelog records a disk may have lacked at the crash, at most, where commits are written
    `AT_ONCE`: those of the last commit; at least once those of inputs behind it, too. A count logs each of its inputs
    once, or each key once per commit."""
    commits: dict[Place, list[int]] = {}
    for place, offset in world.history(crash.history_end).commits:
        commits.setdefault(place, [0]).append(offset)
    tail = Counter[str]()
    for place, keys in crash.inputs.items():
        before, last = [0, *commits.get(place, [0])][-2:]
        for one in (keys[before:last], [] if world.exactly_once else keys[last:]):
            tail[f"0_{place.partition}"] += len(set(one) if world.logs_at_commits else one)
    return tail


def offsets_on_disk(world: World, app: Instance) -> dict[str, int]:
    """By task, how far of its changelog the store of a count is that has ended."""
    return {dump.task: dump.offset or 0 for dump in dumps(app.state_dir, world.application_id, world.directory)}


def nothing_read_twice(world: World, had: Mapping[str, int], app: Instance) -> None:
    """Each restoration of a count has read no more than what comes behind the offsets that its disk `had`."""
    ends = world.cluster.ends(world.cluster.places([world.topic("counts-changelog")]))
    tail = Counter({f"0_{place.partition}": end for place, end in ends.items()})
    tail.subtract(had)
    hold(found for task, count in app.restorations() for found in no_more_than(tail, Counter({task: count})))


def await_timed_out(world: World, count: int) -> None:
    """Let the time of a transaction of `PATIENT` pass, and wait until Kafka has aborted so many because of it."""
    over = time.monotonic() + TRANSACTION_MS / 1000

    def timed_out() -> object:
        found = len(none_timed_out(world.transactions()))
        return (found >= count and time.monotonic() > over) or NotYet(f"{found} of {count} have timed out")

    world.wait(timed_out, "Kafka aborts the transaction that is too old")


def feed_until(
    world: World,
    instance: Instance,
    reached: Callable[[], object],
    what: str,
    *,
    lives: bool = True,
    feed: Callable[[], object] | None = None,
) -> None:
    """Small batches of input, so that there is always something to commit, until that holds; `lives`: the instance.
    `feed`: sends another batch than the usual one."""

    def fed() -> object:
        seen = reached()
        if not seen or isinstance(seen, NotYet):
            if lives:
                instance.must_live()
            if feed is None:
                world.feeds["in"].send(world.records(40, keys=50))
            else:
                feed()
        return seen

    world.wait(fed, what)


def feed_until_it_stands(world: World, instance: Instance) -> None:
    """Feed until a fault has stopped the instance (SIGSTOP)."""
    feed_until(world, instance, lambda: instance.standing, f"the fault stops {instance.name}")


def feed_until_it_says(
    world: World, instance: Instance, text: str, times: int = 1, feed: Callable[[], object] | None = None
) -> None:
    """Feed until its log has the text so often. `feed`: as in `feed_until`."""

    def said() -> object:
        found = instance.log().count(text)
        return found >= times or NotYet(f"{found} of {times}")

    feed_until(world, instance, said, f"{instance.name} says {text!r}", feed=feed)


def feed_until_it_dies(world: World, instance: Instance, code: int = -9) -> None:
    """Feed until a fault has killed the instance, or ended it with this exit `code`."""
    feed_until(world, instance, lambda: not instance.running, f"the fault strikes {instance.name}", lives=False)
    instance.dies(code)


def loading(world: World, count: int, keys: int, groups: int) -> Callable[[], object]:
    """Sends so much more input at each call."""
    return lambda: world.feeds["in"].send(world.groups(count, keys, groups))


def bounce(
    world: World,
    one: Instance,
    load: Callable[[], object],
    end: Callable[[Instance], None] = Instance.stop,
    **changes: Any,
) -> None:
    """End it and start it under load, until the group is complete."""
    load()
    end(one)
    load()
    one.start(**changes)
    world.wait(lambda: one.state() == "RUNNING" or NotYet(one.state()), f"{one.name} runs with {changes}")
    world.group_is(*world.instances)
    load()


def await_outputs(world: World, tail: TopicTail, count: int) -> None:
    """Wait until so many committed outputs are there."""
    world.wait(lambda: tail.has(count), f"{count} outputs in {world.topic('out')}")


def counted(world: World, records: int = 2_000, keys: int = 200, **settings: Any) -> Instance:
    """An application with state of two tasks that has ended."""
    world.input("in", 2, out=2).send(world.records(records, keys))
    app = world.instance("count", **settings).start()
    world.finish(app)
    return app


def went_on(world: World, app: Instance, *, crashed: bool) -> Standing:
    """It processes what comes after all of that, and has lost nothing; how it stood at its end."""
    world.feeds["in"].send(world.records(500, keys=50))
    world.processed()
    app.must_live()
    after = standing(world, app)
    end_and_judge(world, COUNT, crashed=crashed)
    return after


def meet_late_ends(world: World, app: Instance) -> None:
    """With Kafka's old transactions (KIP-890 ends that) nothing in the request says which transaction it means: the
    defence is a producer with an epoch of its own after each connection that broke. Without it, what the next
    transaction has sent so far is committed without its offsets, and sent again after a crash."""
    feed, proxy = world.feeds["in"], proxy_of(world)
    feed.send(world.records(500, keys=100))
    world.processed()
    with world.outputs() as outputs:
        for _ in range(LATE_ENDS):
            held = proxy.hold(Api.END_TXN, Side.REQUEST, times=1)
            feed.send(world.records(100, keys=100))
            held.wait()
            proxy.disconnect("*producer*")
            await_outputs(world, outputs, len(feed.rows))
            offsets = proxy.hold(Api.ADD_OFFSETS_TO_TXN, Side.REQUEST, times=1)
            feed.send(world.records(100, keys=100))
            offsets.wait()  # outputs are in the next transaction
            held.end()
            app.kill()
            offsets.end()
            app.start()
            await_outputs(world, outputs, len(feed.rows))


def order_of(world: World, rows: Iterable[Row]) -> dict[Place, list[Origin]]:
    """The origins in each partition of `out` when the inputs are processed in the order of `rows`: for topologies
    whose output partition is the key's, as the input's is."""
    topic = world.topic("out")
    partitions = world.cluster.topics()[topic]
    order: defaultdict[Place, list[Origin]] = defaultdict(list)
    for row in rows:
        origin = origin_of(row)
        assert row.key is not None
        assert origin is not None
        order[Place(topic, partition_of(row.key, partitions))].append(origin)
    return order
