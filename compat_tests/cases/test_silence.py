"""A member that says nothing any more holds up its own tasks until its session is over, and nobody else's."""

from __future__ import annotations

import pytest

from compat_tests.cases.arrivals import Gaps
from compat_tests.cases.flows import COUNT
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

MOST_S = 5.0
"""Well within the session time-out of 10 s: the gate of commits (a quarter of the transaction time-out), a commit, and
a loaded machine."""


@pytest.mark.parametrize("newcomer", [False, True], ids=["alone", "with-a-newcomer"])
@pytest.mark.full
def test_others_go_on_while_a_silent_member_keeps_its_group_waiting(world: World, newcomer: bool) -> None:
    """With a newcomer a rebalance begins at once, and can't end before the silent member's session is over.

    As many output as input partitions: in one that several tasks write to, an open transaction of the silent member
    would hide what the others have committed until it times out.
    """
    feed = world.input("in", 6, out=6)
    slow = {"session_timeout_ms": 10_000, "transaction_timeout_ms": 5_000}
    group = [world.instance("count", name, **slow).start() for name in ("silent", "b", "c")]
    silent, late = group[0], world.instance("count", "late", **slow)
    keys = [b"k%d" % number for number in range(60)]
    with world.cluster.tail(world.topic("out")) as tail:
        gaps = Gaps(tail)

        def load() -> object:
            records = world.records(60, keys=60)
            feed.send(record._replace(key=key) for record, key in zip(records, keys, strict=True))
            gaps.look()
            return False

        world.group_is(*group)
        world.wait(lambda: load() or len(tail.rows) > 1_000, "outputs flow")
        its = world.inputs_of(silent)
        theirs = set(world.cluster.places([feed.topic])) - its
        gaps.forget()
        silent.pause()
        if newcomer:
            late.start()
        left = [one for one in (*group[1:], late) if one.running]

        def taken_over() -> object:
            load()
            owned = {place for name, some in world.members().items() if not name.startswith("silent") for place in some}
            return its | theirs <= owned

        world.wait(taken_over, "the others have the silent member's tasks")
        seen = len(tail.rows)
        world.wait(lambda: load() or len(tail.rows) > seen + 500, "outputs flow")
        print(f"longest gap in the output: silent member's tasks {gaps.of(its):.2f} s, others' {gaps.of(theirs):.2f} s")
        assert gaps.of(theirs) < MOST_S
        silent.kill()
        world.group_is(*left)
    end_and_judge(world, COUNT, crashed=True)
