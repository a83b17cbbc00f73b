"""A membership thread never spins: in every state, whatever waits, it sleeps until there is something to do."""

from __future__ import annotations

from itertools import combinations

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.kafka.membership.events import Rejoin

LOOK_MS = 20
"""How long a look for an answer that isn't there takes."""


def leading(bench):
    bench.leader.steps = 10**9
    bench.joined()


def coordinator_away(bench):
    bench.broker.down = True
    bench.run(3_000)


STATES = {
    "unjoined": lambda bench: bench.asked(),
    "lost": lambda bench: bench.stable().beat(ErrorCode.unknown_member_id),
    "joining for the first time": lambda bench: bench.asked().join_held(),
    "joining": lambda bench: bench.stable().join_held(),
    "syncing": lambda bench: bench.stable().join_held(request="SyncGroup"),
    "leading": lambda bench: leading(bench.stable()),
    "stable": lambda bench: bench.stable(),
    "stable and the coordinator away": lambda bench: coordinator_away(bench.stable()),
    "joining and the coordinator away": lambda bench: coordinator_away(bench.stable().join_held()),
    "stable and a transaction pends": lambda bench: bench.stable().broker.refused.update(
        {"in": ErrorCode.unstable_offset_commit}
    ),
    "joining and commits have to wait": lambda bench: bench.stable().join_held().broker.codes.update(
        {"OffsetCommit": [ErrorCode.rebalance_in_progress] * 1_000}
    ),
}
WAITING = {
    "a question": lambda bench: bench.fetch(),
    "a commit": lambda bench: bench.commit(timeout_ms=5_000),
    "a rejoin": lambda bench: bench.machine.receive(Rejoin("why not")),
}


def traces(bench):
    """All that a step can leave behind: requests, looks for answers, the leader's steps, connections, events."""
    broker, machine = bench.broker, bench.machine
    return (
        len(broker.requests), broker.looks, bench.leader.done, len(broker.hosts), len(bench.events), machine.state,
        bool(machine._commits),
    )  # fmt: skip


@pytest.mark.parametrize("waiting", [w for n in range(4) for w in combinations(WAITING, n)], ids=str)
@pytest.mark.parametrize("state", STATES)
def test_a_step_that_has_nothing_to_do_isn_t_asked_for(state, waiting, member_bench):
    bench = member_bench(session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
    STATES[state](bench)
    for name in waiting:
        WAITING[name](bench)
    bench.machine.run_once(bench.now)
    end, idle = bench.now + 10_000, 0
    while bench.now < end and idle < 3:
        bench.machine.polled_ms = bench.now
        before, wait_ms = traces(bench), bench.machine.wait_ms(bench.now)
        bench.now += wait_ms
        bench.machine.run_once(bench.now)
        if traces(bench) != before:
            idle = 0
            bench.now += LOOK_MS
        elif wait_ms == 0:
            idle += 1
    assert idle < 3, f"{bench.machine.state.name} with {waiting}: steps follow each other and none does anything"
