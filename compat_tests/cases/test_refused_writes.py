"""An output topic that takes no writes for a while, as too few of its replicas are in sync: the client tries again.

A broker alone can't be brought to say so: Kafka asks for no more replicas in sync (`min.insync.replicas`) than a
partition has. The network says it.
"""

from __future__ import annotations

from functools import partial

import psutil
import pytest

from compat_tests.cases.arrivals import CommitGaps
from compat_tests.cases.flows import COPY, COUNT_OF_OTHER
from compat_tests.cases.steps import TOLERANT, proxy_of, standing
from compat_tests.harness.feed import Sent
from compat_tests.harness.followers import METRICS, of_account, of_all
from compat_tests.harness.instance import Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import in_place
from milestones.testing import NotYet

REFUSED_S = 30.0
PARTITIONS = 3
KEYS = 200
VALUE = "v" * 1_000
MOST = 15_000
"""Records that come to each input meanwhile."""
AFTERWARDS = 3_000
"""Records that come to each input once writes are taken again: what came before may all be committed by then."""
MB = 1_000_000
BOUND = 2 * MB
SMALL: Settings = {
    "input_buffer_max_bytes": BOUND,
    "output_buffer_max_bytes": BOUND,
    "statestore_uncommitted_max_bytes": BOUND,
    "consumer_queued_max_messages_kbytes": BOUND // 1_000,
    "producer_queue_buffering_max_kbytes": BOUND // 1_000,
}
BOUNDED = ("input", "outputs", "uncommitted")
"""Of the accounts of memory."""
SLACK = BOUND + 2 * PARTITIONS * 256 * 1_024
"""What one turn may bring beyond a bound: all that the client has fetched, up to its own bound and one answer of a
broker. That many outputs may come of it."""
PATIENT: Settings = {"task_timeout_ms": 120_000, "num_stream_threads": 1, "num_processing_threads": 3}
LOST = "membership lost"


@pytest.mark.full
@pytest.mark.broker_faults
def test_an_output_topic_that_refuses_writes_for_a_while_costs_time_only(world: World) -> None:
    """Also of tasks that write to other topics: they are in the same commits."""
    world.create(out=1, counts=1)
    feeds = [world.input(suffix, PARTITIONS) for suffix in ("in", "other")]
    proxy = proxy_of(world)
    settings: Settings = {**PATIENT, **SMALL, **METRICS, "bootstrap_servers": proxy.bootstrap_servers}
    app = world.instance("two", **settings).start()
    others = world.cluster.places([world.topic("other")])

    def load(up_to: int = MOST) -> None:
        for feed in feeds:
            if len(feed.rows) < up_to:
                feed.send(sized(world, 200))

    load()
    world.processed()
    before, resident = standing(world, app), psutil.Process(app.pid).memory_info().rss
    gaps, most, peak = CommitGaps(world), dict.fromkeys(BOUNDED, 0), resident

    def meanwhile(up_to: int = MOST) -> None:
        nonlocal peak
        load(up_to)
        gaps.look()
        peak = max(peak, psutil.Process(app.pid).memory_info().rss)
        for account in BOUNDED:
            most[account] = max(most[account], of_account(app, account))

    some = partial(meanwhile, MOST // 3)
    world.let_pass(2, "commits flow", some)
    gaps.forget()
    world.let_pass(5, "commits flow", some)
    usual = gaps.of(others)
    refused = proxy.refuse(world.topic("out"))
    load()
    refused.wait()
    world.let_pass(REFUSED_S, "writes are refused", meanwhile)
    refused.end()
    committed = world.committed()

    def goes_on() -> object:
        meanwhile(MOST + AFTERWARDS)
        now = world.committed()
        return all(offset > committed.get(place, 0) for place, offset in now.items()) or NotYet(str(now))

    world.wait(goes_on, "all tasks go on")
    came = sum(len(feed.rows) for feed in feeds) * len(VALUE)
    print(
        f"{world.stage}, {world.guarantee}: for {REFUSED_S:.0f} s a topic refused writes; other tasks' commits waited "
        f"{gaps.of(others):.1f} s at most, before {usual:.1f} s; {came // MB} MB of input came, memory grew by "
        f"{(peak - resident) // MB} MB, buffers held at most {most}; uncommitted work was rolled back "
        f"{of_all(app, 'thread_rolled_back_total')} times"
    )
    world.processed()
    after = standing(world, app)
    assert LOST not in app.log()
    end_and_judge(world, COPY, COUNT_OF_OTHER, timed_out=True)
    if world.has(TOLERANT) or not world.exactly_once:
        hold(in_place(before, after))
    assert max(most.values()) < BOUND + SLACK


def sized(world: World, count: int) -> list[Sent]:
    return world.records(count, KEYS, lambda number: f"{number}{VALUE}")
