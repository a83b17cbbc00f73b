"""Whatever happens to the network, the process and the machine: a member whose session isn't over by its own clocks is
still one of the coordinator's."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from milestones.common.kafka.membership.events import Close, Rejoin
from tests.common.kafka.fake_broker import name_of

SESSION_MS, POLL_MS, STEP_MS = 6_000, 20_000, 200
KNOWN = {"Heartbeat", "SyncGroup", "OffsetCommit"}
GROUP = {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator"}
NETWORK = {
    "all is well": ((), ()),
    "packets vanish": ((), GROUP),
    "JoinGroup vanishes": ((), {"JoinGroup"}),
    "SyncGroup vanishes": ((), {"SyncGroup"}),
    "heartbeats vanish": ((), {"Heartbeat"}),
    "the group takes its time to join": ({"JoinGroup"}, ()),
    "the leader takes its time": ({"SyncGroup"}, ()),
}
OTHERS = ["nothing", "a rebalance", "a stop", "a suspension", "the owner is late", "the end"]
HAPPENS = st.sampled_from([*NETWORK, *OTHERS])
SCHEDULE = st.lists(st.tuples(HAPPENS, st.integers(0, 3 * SESSION_MS)), max_size=12)


class Session:
    """The coordinator's view: it gives a member up that it hasn't heard of for a session, or that leaves."""

    def __init__(self, bench: Any) -> None:
        self._bench, self._handle = bench, bench.broker.handle
        self._heard_ms = 0
        self._gone = True
        bench.broker.handle = self.handle

    @property
    def now_ms(self) -> int:
        return self._bench.now + self._bench.still_ms

    @property
    def alive(self) -> bool:
        self._gone |= self.now_ms - self._heard_ms > SESSION_MS
        return not self._gone

    def handle(self, request: Any) -> Any:
        name = name_of(request)
        known = name in KNOWN or (name == "JoinGroup" and request.member_id)
        if known and not self.alive:
            self._bench.broker.codes[name] = [ErrorCode.unknown_member_id]
        elif name == "LeaveGroup":
            self._gone = True
        elif known or name == "JoinGroup":
            self._gone, self._heard_ms = False, self.now_ms
        return self._handle(request)


def pass_time(bench: Any, session: Session, ms: int, *, polls: bool) -> None:
    end = bench.now + ms
    while True:
        if polls:
            bench.machine.polled_ms = bench.now
            if bench.take() and bench.machine._owner_events._asked is not None:
                bench.join()
        for _ in range(3):
            held = not bench.machine.session_over(bench.now)
            assert not held or session.alive, f"{bench.machine.state.name}: a zombie that believes in its session"
            bench.machine.run_once(bench.now)
        if bench.now >= end:
            return
        bench.now = min(bench.now + STEP_MS, end)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=SCHEDULE)
def test_a_member_that_believes_in_its_session_is_the_coordinator_s(member_bench, schedule):
    """`member_bench` is a class: every schedule has a machine of its own."""
    bench = member_bench(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1_000, max_poll_interval_ms=POLL_MS)
    session = Session(bench)
    pass_time(bench, session, 1_000, polls=True)
    assert session.alive
    for happens, ms in schedule:
        match happens:
            case "a rebalance":
                bench.machine.receive(Rejoin("the test"))
            case "a stop":
                bench.now += ms
            case "a suspension":
                bench.still_ms += ms
            case "the end":
                bench.machine.receive(Close(leave=True))
            case _ if happens in NETWORK:
                bench.broker.holds, bench.broker.swallows = map(set, NETWORK[happens])
        pass_time(bench, session, ms, polls=happens != "the owner is late")
