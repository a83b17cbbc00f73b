"""Processes and brokers that stop answering: what they were doing is fenced, what comes back goes on."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT, COUNT_BY_VALUE
from compat_tests.cases.sleepers import BRIEF, in_blocks, oversleep
from compat_tests.cases.steps import await_outputs
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

MISSED_HEARTBEATS_S = 3.0
"""Several heartbeats of the suite's applications, far less than the session of the case that stands still so long."""


def test_a_process_stopped_beyond_session_and_transaction_timeout_is_fenced(world: World) -> None:
    feed = world.input("in", 4, out=3)
    sleeper, other = world.instance("count", "sleeper", **BRIEF).start(), world.instance("count", "other").start()
    world.group_is(sleeper, other)
    with world.outputs() as outputs:
        feed.send(in_blocks(world.records(10_000, keys=500)))
        await_outputs(world, outputs, 1_000)
        oversleep(world, sleeper, other, 1_000, 500)


@pytest.mark.full
def test_a_process_stopped_for_less_than_its_session_keeps_its_tasks(world: World) -> None:
    feed = world.input("in", 2, out=2)
    app = world.instance("count", session_timeout_ms=30_000, transaction_timeout_ms=20_000).start()
    world.group_is(app)
    feed.send(world.records(1_000, keys=100))
    app.pause()
    feed.send(world.records(1_000, keys=100))
    world.let_pass(MISSED_HEARTBEATS_S, "heartbeats were missed")
    app.resume()
    end_and_judge(world, COUNT)
    assert len({generation.number for generation in world.history().generations}) == 1


@pytest.mark.full
@pytest.mark.broker_faults
def test_a_broker_that_is_killed_and_comes_back_costs_nothing(world: World) -> None:
    feed = world.input("in", 3, out=3)
    world.instance("count-by-value", num_stream_threads=2).start()
    with world.outputs() as outputs:
        feed.send(world.groups(5_000, 300, 300))
        await_outputs(world, outputs, 500)
        world.broker.kill()
        world.broker.start()
        feed.send(world.groups(1_000, 300, 300))
    end_and_judge(world, COUNT_BY_VALUE, crashed=True, repartitions=[BY_VALUE_REPARTITION])
