"""Kafka takes no outputs: the client fills up. The thread goes on answering its group, and stops when it is told to."""

from __future__ import annotations

import time

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.steps import proxy_of
from compat_tests.harness.instance import Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.network.faults import Side
from compat_tests.network.frames import Api

pytestmark = pytest.mark.broker_faults

ANSWERED_S = 25.0
"""Beyond a commit that waits for room (10 s with a transaction), far below `task_timeout_ms` and the time-out of a
message (300 s both)."""

SMALL: Settings = {
    "session_timeout_ms": 60_000,
    "producer_queue_buffering_max_messages": 1_000,
    "num_stream_threads": 1,
    "commit_interval_ms": 2_000,
}


def test_a_thread_that_kafka_takes_no_outputs_of_lets_another_member_in_and_stops(world: World) -> None:
    feed = world.input("in", 2, out=2)
    stuck = world.instance("count", "stuck", bootstrap_servers=proxy_of(world).bootstrap_servers, **SMALL).start()
    world.group_is(stuck)
    feed.send(world.records(300, keys=100))
    world.processed()
    produce = proxy_of(world).hold(Api.PRODUCE, Side.REQUEST)
    feed.send(world.records(20_000, keys=100))
    produce.wait()
    began = time.monotonic()
    other = world.instance("count", "other", num_stream_threads=1, session_timeout_ms=60_000).start()
    world.group_is(stuck, other)
    assert time.monotonic() - began < ANSWERED_S
    began = time.monotonic()
    stuck.stop()
    assert time.monotonic() - began < ANSWERED_S
    # What is held stays so: let go now, it would be a network that delivers the words of the dead.
    end_and_judge(world, COUNT, crashed=True)
