"""An instance is one member of the group, however many threads process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.apps import REMOVED
from compat_tests.cases.arrivals import Rates, are_prompt
from compat_tests.cases.calls import waiting
from compat_tests.cases.flows import CALLS, COUNT
from compat_tests.cases.steps import generation
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from milestones.testing import NotYet

KEYS = 200
PARTITIONS = 6
THREADS: dict[str, Any] = {"num_stream_threads": 1, "num_processing_threads": 3}
CALLERS, CALL_MS = 8, 10
WAITING_CALLS = 1_000
"""More than all threads make until the next look."""
EFFECT_S = 1.0
"""An added thread makes calls after that at the latest."""
LONG_S = 20.0
"""Of a call in which its thread is removed."""


@pytest.fixture(autouse=True)
def _polls_in_one_thread(world: World) -> None:
    if not world.has("polling_thread"):
        pytest.skip("each stream thread is a member of its own")


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("static", [None, pytest.param("me", marks=pytest.mark.full)], ids=["dynamic", "static"])
def test_threads_come_and_go_without_a_rebalance_and_with_the_last_one_the_member_leaves(
    world: World, static: str | None
) -> None:
    feed = world.input("in", PARTITIONS, out=PARTITIONS)
    app = world.instance("count", group_instance_id=static, **THREADS).start()
    feed.send(world.records(300, KEYS))
    world.processed()
    assert len(world.members()) == 1
    before = generation(world)
    for change in [Instance.add_thread] * 5 + [Instance.remove_thread] * 7:
        feed.send(world.records(50, KEYS))
        change(app)
    feed.send(world.records(100, KEYS))
    world.processed()
    assert generation(world) == before
    assert "restored" not in app.log().rpartition("stream thread removed")[2]
    app.remove_thread()
    world.wait(lambda: not world.members() or NotYet(str(world.members())), "the member has left")
    feed.send(world.records(100, KEYS))
    app.add_thread()
    end_and_judge(world, COUNT)


@pytest.mark.full
def test_added_threads_make_calls_within_a_second_and_only_with_the_last_one_the_member_leaves(world: World) -> None:
    """1, 8, 2, 0, 1 threads under load."""
    feed = world.input("in", CALLERS, out=CALLERS)
    app = world.instance("calls", num_stream_threads=1).start()
    with world.outputs() as outputs:
        rates = Rates(outputs)

        def fed() -> int:
            """There are always calls to make. How many have been made."""
            made = rates.look() // 2
            if len(feed.rows) - made < WAITING_CALLS:
                feed.send(world.records(WAITING_CALLS, KEYS, lambda _: f"slow {CALL_MS}"))
            return made

        def calls_per_second(after_s: float = 0.0) -> float:
            world.let_pass(after_s, "the change takes effect", fed)
            began = time.monotonic()
            world.let_pass(3, "calls are made", fed)
            return rates.between(began, time.monotonic()) / 2

        def changed(change: Callable[[Instance], None], times: int) -> float:
            for _ in range(times):
                began = time.monotonic()
                change(app)
            return calls_per_second(EFFECT_S - (time.monotonic() - began))

        world.wait(lambda: fed() > 300 or NotYet("few calls"), "calls are made")
        made, before = {1: calls_per_second()}, generation(world)
        made |= {2: changed(Instance.add_thread, 1), 8: changed(Instance.add_thread, 6)}
        again = changed(Instance.remove_thread, 6)
        print(f"by number of threads, calls of {CALL_MS} ms per second, from {EFFECT_S:.0f} s after a change on: "
              f"{ {threads: round(rate) for threads, rate in made.items()} }, of 2 again {again:.0f}")  # fmt: skip
        assert 1.4 * made[1] < made[2]
        assert 1.4 * made[2] < made[8]
        assert generation(world) == before
        app.remove_thread()
        app.remove_thread()
        world.wait(lambda: not world.members() or NotYet(str(world.members())), "the member has left")
        app.add_thread()
    end_and_judge(world, CALLS)


@pytest.mark.full
def test_a_thread_that_is_removed_in_a_long_call_ends_when_it_returns_and_holds_up_no_other_one(world: World) -> None:
    feed = world.input("in", PARTITIONS, out=PARTITIONS)
    app = world.instance("calls", max_poll_interval_ms=int(LONG_S * 1000 / 2), **THREADS).start()
    feed.send(world.records(200, KEYS))
    world.processed()
    calls = [waiting(world, partition) for partition in range(THREADS["num_processing_threads"])]
    rows = feed.send(call.sent for call in calls)
    for call in calls:
        call.begins(app)
    before, over = generation(world), time.monotonic() + LONG_S
    app.signal(signal.SIGHUP)
    app.says("is removed; 2 are left")
    app.add_thread()  # the others are in calls, too
    rest = world.cluster.places([feed.topic])[len(calls) :]
    with world.outputs() as outputs:
        lasts = lambda: time.monotonic() > over or NotYet("the calls last")  # noqa: E731
        are_prompt(world, outputs, rest, lasts, f"{LONG_S:.0f} s in calls", keys=KEYS)
    world.wait(lambda: world.inputs_committed(rest), "the other tasks are committed")
    assert all(world.committed()[row.place] == row.offset for row in rows)
    assert REMOVED not in app.log()
    for call in calls:
        call.release()
    app.says(REMOVED)
    assert generation(world) == before
    end_and_judge(world, CALLS)
