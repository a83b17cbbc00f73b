"""When a member may still believe that its tasks are its own: as long as the group has said so lately, no longer."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.kafka.membership.events import Close
from milestones.common.kafka.membership.states import MemberState

EVERYTHING = {"FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch", "OffsetCommit"}
SESSION_MS = 6_000


@pytest.fixture
def unjoined(member_bench):
    return member_bench(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1_000, max_poll_interval_ms=60_000)


@pytest.fixture
def bench(unjoined):
    return unjoined.stable()


# ---- left


def test_a_member_that_has_no_generation_yet_has_no_session(unjoined):
    assert unjoined.machine.session_over(0)
    bench = unjoined.stable()
    assert not bench.machine.session_over(bench.now)


def test_a_member_that_has_left_because_its_owner_was_late_has_no_session(bench):
    bench.run(61_000, poll=False)
    assert len(bench.broker.of("LeaveGroup")) == 1
    assert bench.machine.session_over(bench.now)
    bench.machine.polled_ms = bench.now
    assert bench.machine.session_over(bench.now), "that the owner polls again gives nothing back"


def test_an_owner_that_is_late_counts_as_gone_before_its_thread_notices(bench):
    bench.run(60_000, poll=False)
    assert not bench.machine.session_over(bench.now)
    assert bench.machine.session_over(bench.now + 1)


@pytest.mark.parametrize("why", ["late", "failed", "closed"])
def test_the_owner_can_see_that_the_group_is_left_before_the_group_hears_of_it(bench, why):
    seen = []
    leave = bench.broker._LeaveGroup
    bench.broker._LeaveGroup = lambda *asked: (seen.append(bench.machine.session_over(bench.now)), leave(*asked))[1]
    if why == "closed":
        bench.machine.receive(Close(leave=True))
    if why == "failed":
        bench.broker.codes["Heartbeat"] = [ErrorCode.group_authorization_failed]
    bench.run(61_000, poll=why != "late")
    assert seen == [True]


# ---- silence while a JoinGroup waits


def test_a_join_that_the_group_holds_back_for_minutes_keeps_the_session(bench):
    bench.join_held()
    for _ in range(50):
        bench.run(1_000)
        assert not bench.machine.session_over(bench.now)
    assert bench.kinds() == []


@pytest.mark.parametrize("lost", [{"JoinGroup"}, {"SyncGroup"}])
def test_silence_while_joining_is_no_sign_of_life(bench, lost):
    bench.broker.swallows = lost | EVERYTHING - {"JoinGroup"}
    bench.join()
    bench.run(SESSION_MS + 1)
    assert bench.machine.session_over(bench.now)


def test_a_coordinator_that_vanishes_for_a_minute_loses_the_member_for_no_longer_than_its_session(bench):
    bench.broker.swallows = EVERYTHING
    assert bench.joined(60_000) == ["Lost", "JoinNeeded"]
    bench.broker.swallows = set()
    assert bench.joined(SESSION_MS) == ["Assigned"]


def test_a_join_group_that_was_lost_on_its_way_is_sent_again_within_a_session(bench):
    bench.broker.swallows = {"JoinGroup"}
    bench.join()
    bench.run(1_000)
    bench.broker.swallows = set()
    for wire in bench.broker.wires:
        wire.dead = bool(wire.sent)  # what it carried is gone
    bench.run(SESSION_MS)
    assert bench.kinds() == ["Assigned"]
    assert not bench.machine.session_over(bench.now)


@pytest.mark.parametrize("lost", ["JoinGroup", "SyncGroup"])
def test_what_a_rebalancing_group_may_never_have_got_is_sent_again_after_a_session(bench, lost):
    bench.join_held(SESSION_MS - 100, lost)
    assert len(bench.broker.of("JoinGroup")) == (1 if lost == "JoinGroup" else 2)
    for wire in bench.broker.wires:
        wire.dead = bool(wire.sent)
    bench.broker.codes["Heartbeat"] = [ErrorCode.rebalance_in_progress if lost == "JoinGroup" else ErrorCode.none]
    assert bench.released(SESSION_MS // 3) == ["Assigned"]


def test_a_first_join_group_that_was_lost_on_its_way_is_sent_again_when_the_group_does_not_know_of_it(unjoined):
    bench = unjoined.asked()
    bench.broker.codes["JoinGroup"] = [ErrorCode.member_id_required]
    bench.join()
    bench.machine.run_once(bench.now)
    bench.broker.holds = {"JoinGroup"}
    bench.machine.run_once(bench.now)
    for wire in bench.broker.wires:
        wire.dead = True
    bench.broker.codes["Heartbeat"] = [ErrorCode.unknown_member_id]
    bench.released(SESSION_MS)
    assert bench.membership.generation == 1


def test_a_group_that_gave_the_member_up_while_it_joined_tells_it_at_the_next_probe(bench):
    bench.broker.codes["Heartbeat"] = [ErrorCode.unknown_member_id]
    bench.join_held(SESSION_MS // 3 + 100)
    assert bench.kinds() == ["Lost", "JoinNeeded"]


def test_a_generation_that_ended_while_the_probe_was_on_its_way_is_no_loss_the_answer_is_coming(bench):
    bench.broker.codes["Heartbeat"] = [ErrorCode.illegal_generation]
    bench.join_held(SESSION_MS // 3 + 100)
    assert bench.released() == ["Assigned"]


def test_a_sync_that_waits_for_its_leader_keeps_the_session_and_ends_with_the_rebalance_that_follows(bench):
    bench.broker.leader, bench.broker.stored = "other", b""
    bench.join_held(30_000, "SyncGroup")
    assert bench.machine.state is MemberState.SYNCING
    assert not bench.machine.session_over(bench.now)
    joins = len(bench.broker.of("JoinGroup"))
    bench.broker.codes["Heartbeat"] = [ErrorCode.rebalance_in_progress]
    bench.run(SESSION_MS // 3 + 100)
    assert len(bench.broker.of("JoinGroup")) == joins + 1
    assert bench.released() == ["Assigned"]
    assert bench.membership.generation == bench.broker.generation


@pytest.mark.parametrize(("code", "over"), [(ErrorCode.none, False), (ErrorCode.topic_authorization_failed, True)])
def test_a_commit_that_is_taken_proves_the_session_one_that_is_refused_does_not(member_bench, code, over):
    """Kafka looks at the right to a topic before it looks at the group."""
    bench = member_bench(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=3_000).stable()
    bench.run(2_900)
    bench.broker.codes["OffsetCommit"] = [code]
    assert (bench.answer(bench.commit()) is None) is not over
    assert bench.broker.of("Heartbeat") == []
    assert bench.machine.session_over(SESSION_MS + 1) is over


# ---- a process that stood still


@pytest.mark.parametrize("waiting", ["JoinGroup", "SyncGroup"])
def test_an_answer_that_waited_for_a_process_that_stood_still_is_not_believed(bench, waiting):
    bench.join_held(1_000, waiting)
    bench.broker.holds = set()
    bench.now += 10 * SESSION_MS - 3_000  # stopped, not as long as max_poll_interval_ms
    assert bench.machine.session_over(bench.now)
    bench.broker.codes["Heartbeat"] = [ErrorCode.unknown_member_id]
    bench.machine.polled_ms = bench.now
    bench.machine.run_once(bench.now)
    assert bench.machine.session_over(bench.now)
    assert bench.kinds() == ["Lost", "JoinNeeded"]


def test_a_computer_that_was_suspended_beyond_the_session_knows_it_when_it_wakes(bench):
    bench.still_ms += SESSION_MS + 1
    assert bench.machine.session_over(bench.now)
    bench.run(1_000)
    assert not bench.machine.session_over(bench.now), "the group has answered: it knows the member still"


def test_an_answer_to_what_was_sent_before_the_computer_was_suspended_tells_nothing_of_the_time_after(bench):
    beat = bench.broker._Heartbeat

    def suspended(request, code):
        bench.still_ms += SESSION_MS + 1
        return beat(request, code)

    bench.broker._Heartbeat = suspended
    bench.now += 1_000
    bench.machine.run_once(bench.now)
    assert bench.machine.session_over(bench.now)


def test_a_suspension_does_not_count_against_the_owner(bench):
    bench.still_ms += 3_600_000
    bench.run(1_000)
    assert bench.kinds() == []
    assert bench.broker.of("LeaveGroup") == []


# ---- the leader's work


def test_heartbeats_go_on_between_the_steps_of_the_leader(bench):
    bench.leader.steps = 10**9
    bench.join()
    for _ in range(50):
        bench.run(1_000)
        assert not bench.machine.session_over(bench.now)
    assert bench.broker.of("Heartbeat")[-1].generation_id == 2
    assert bench.kinds() == []


def test_heartbeats_go_on_between_the_steps_of_a_leader_that_has_just_come(unjoined):
    """Kafka would remove it for its silence, and what it has looked up and made so far would have been in vain."""
    bench = unjoined.asked()
    bench.join()
    bench.leader.steps = 10**9
    beats = []
    for _ in range(10):
        bench.run(SESSION_MS - 1_000)
        beats.append(len(bench.broker.of("Heartbeat")))
    assert beats == sorted(set(beats)), "at least one in each session"
    assert len(bench.leader.seen) == 1


def test_a_leader_whose_group_has_gone_on_does_not_finish_its_work(bench):
    bench.leader.steps = 10**9
    bench.join()
    bench.run(1_000)
    bench.leader.steps = 0
    bench.broker.codes["Heartbeat"] = [ErrorCode.rebalance_in_progress]
    bench.run(SESSION_MS)
    assert bench.kinds() == ["Assigned"]
    assert len(bench.leader.seen) == 3
    assert len(bench.broker.of("SyncGroup")) == 2
