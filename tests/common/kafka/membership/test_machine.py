from __future__ import annotations

from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.assignment.model import profile_of
from milestones.common.errors import KafkaUnreachableError, MembershipError
from milestones.common.kafka.membership import (
    Assigned,
    CommitRetriableError,
    Failed,
    JoinNeeded,
    Lost,
)
from milestones.common.kafka.membership.events import Close, Join, Rejoin
from milestones.common.kafka.membership.protocol import assignment_bytes, read_subscription
from milestones.common.kafka.membership.reactions import TABLE, Reaction, failure, reaction_to
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.kafka.membership.states import MemberState, check_move
from milestones.common.kafka.wire import ConnectionLostError
from tests.common.kafka.fake_broker import LOSSES, codes_of

FATAL = codes_of(Reaction.FAIL)
PASSING = codes_of(Reaction.RETRY, Reaction.FIND)


def test_a_new_member_asks_its_owner_to_join_and_then_gets_an_assignment(member_bench):
    bench = member_bench().asked()
    assert bench.broker.names() == []
    bench.join()
    bench.run()
    [event] = bench.take()
    assert event == Assigned(1, "m-1", bench.ASSIGNED, leader=True)
    assert bench.broker.names() == ["FindCoordinator", "JoinGroup", "SyncGroup"]
    assert (bench.membership.generation, bench.membership.member_id) == (1, "m-1")


def test_a_follower_lets_the_leader_assign(member_bench):
    bench = member_bench().asked()
    bench.broker.leader, bench.broker.stored = "other", assignment_bytes(bench.ASSIGNED)
    bench.join()
    bench.run()
    assert bench.take() == [Assigned(1, "m-1", bench.ASSIGNED, leader=False)]
    assert bench.leader.seen == []


def test_a_member_id_that_is_required_is_taken_and_sent(member_bench):
    bench = member_bench()
    bench.broker.codes["JoinGroup"] = [ErrorCode.member_id_required]
    bench.stable()
    assert [request.member_id for request in bench.broker.of("JoinGroup")] == ["", "m-1"]


def test_heartbeats_go_on_at_their_interval_while_the_owner_takes_its_time(member_bench):
    bench = member_bench(max_poll_interval_ms=60_000).stable()
    bench.broker.codes["Heartbeat"] = [ErrorCode.rebalance_in_progress] * 100
    bench.run(9_000)
    assert len(bench.broker.of("Heartbeat")) == 3
    assert bench.kinds() == ["JoinNeeded"]
    assert bench.membership.generation == 1


def test_a_rebalance_joins_with_what_the_owner_owns_and_the_generation_it_has(bench):
    bench.beat(ErrorCode.rebalance_in_progress)
    assert bench.kinds() == ["JoinNeeded"]
    bench.join(active=frozenset({bench.TASK}))
    bench.run()
    sent = read_subscription(bench.broker.metadata)
    assert (sent.active, sent.generation) == (frozenset({bench.TASK}), 1)
    assert bench.take() == [Assigned(2, "m-1", bench.ASSIGNED, leader=True)]


def test_the_old_generation_stays_valid_for_commits_until_the_new_one_is_there(bench):
    bench.join_held(500)
    assert bench.membership.generation == 1
    assert bench.membership.joins < bench.joins
    assert bench.answer(bench.commit()) is None
    assert bench.broker.of("OffsetCommit")[-1].generation_id_or_member_epoch == 1
    bench.released()
    assert (bench.membership.generation, bench.membership.joins) == (2, bench.joins)


def test_a_held_back_join_is_probed_three_times_a_session_and_doesn_t_end_it(member_bench):
    bench = member_bench(session_timeout_ms=6_000, heartbeat_interval_ms=1_000).stable()
    bench.join_held(20_000)
    assert len(bench.broker.of("Heartbeat")) == 10
    assert bench.released() == ["Assigned"]


def test_a_member_that_stood_still_beyond_its_session_knows_it_by_the_clock(member_bench):
    bench = member_bench(session_timeout_ms=6_000).stable()
    bench.run(20_000)
    assert not bench.machine.session_over(bench.now)
    assert bench.machine.session_over(bench.now + 6_001)


def test_a_join_that_takes_longer_than_the_rebalance_timeout_is_sent_again(member_bench):
    bench = member_bench(max_poll_interval_ms=10_000).stable()
    bench.join_held(16_000)
    assert bench.released(1_000) == ["Assigned"]


@pytest.mark.parametrize("code", LOSSES)
def test_a_lost_generation_is_told_once_and_the_owner_joins_anew(code, bench):
    bench.beat(code)
    lost, needed = bench.take()
    assert isinstance(lost, Lost)
    assert isinstance(needed, JoinNeeded)
    assert bench.membership.generation == -1
    assert bench.joined() == ["Assigned"]
    kept = code is ErrorCode.illegal_generation
    assert bench.broker.of("JoinGroup")[-1].member_id == ("m-1" if kept else "")
    assert read_subscription(bench.broker.metadata).generation == -1


def test_a_join_that_the_owner_sent_before_it_saw_the_loss_is_not_used(bench):
    stale = bench.membership.losses
    bench.beat(ErrorCode.unknown_member_id)
    bench.take()
    joined = len(bench.broker.of("JoinGroup"))
    bench.joins += 1
    bench.machine.receive(Join(bench.joins, stale, bench.subscription(active=frozenset({bench.TASK}))))
    bench.run(1_000)
    assert len(bench.broker.of("JoinGroup")) == joined
    assert bench.membership.joins == bench.joins
    assert bench.joined() == ["Assigned"]


@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup"])
@pytest.mark.parametrize("code", [*PASSING, *LOSSES, ErrorCode.rebalance_in_progress])
def test_a_first_join_gets_through_every_passing_error_without_troubling_the_owner(request_name, code, member_bench):
    bench = member_bench().asked()
    bench.broker.codes[request_name] = [code, code]
    assert bench.joined(3_000) == ["Assigned"]


@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup"])
@pytest.mark.parametrize("code", LOSSES)
def test_a_member_that_the_group_forgets_during_a_rebalance_loses_its_tasks(request_name, code, bench):
    bench.broker.codes[request_name] = [code]
    assert bench.joined(1_000) == ["Lost", "JoinNeeded"]


@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup"])
@pytest.mark.parametrize("code", [*PASSING, ErrorCode.rebalance_in_progress])
def test_a_rebalance_survives_every_passing_error_with_the_generation_kept(request_name, code, bench):
    bench.broker.codes[request_name] = [code]
    assert bench.joined(3_000) == ["Assigned"]


@pytest.mark.parametrize("code", PASSING)
def test_a_heartbeat_is_repeated_after_a_passing_error(code, bench):
    bench.beat(code)
    bench.run(1_000)
    assert bench.take() == []
    assert len(bench.broker.of("Heartbeat")) == 2
    assert bench.membership.generation == 1


@pytest.mark.parametrize("code", FATAL)
@pytest.mark.parametrize("request_name", ["FindCoordinator", "JoinGroup", "SyncGroup"])
def test_a_final_error_fails_the_member_and_says_what_to_do(request_name, code, member_bench):
    bench = member_bench().asked()
    bench.broker.codes[request_name] = [code]
    bench.join()
    bench.run(1_000)
    [event] = bench.take()
    assert isinstance(event, Failed)
    assert isinstance(event.error, MembershipError)
    assert code.name.upper() in str(event.error)
    assert TABLE[code][1] in str(event.error)
    bench.run(10_000)
    assert bench.take() == []


@pytest.mark.parametrize("code", FATAL)
def test_a_final_error_of_a_heartbeat_fails_the_member(code, bench):
    bench.beat(code)
    assert bench.kinds() == ["Failed"]
    assert bench.membership.error is not None


def test_every_code_of_kafka_has_a_reaction():
    assert all(isinstance(reaction_to(code), Reaction) for code in ErrorCode)


def test_a_moved_coordinator_is_looked_up_and_keeps_the_generation(bench):
    bench.broker.coordinator = bench.broker.coordinator._replace(host="coord2")
    bench.beat(ErrorCode.not_coordinator)
    bench.run(1_000)
    assert bench.broker.hosts[-1].host == "coord2"
    assert bench.take() == []
    assert bench.membership.generation == 1


def test_a_broker_restart_within_the_session_keeps_the_generation(member_bench):
    bench = member_bench(session_timeout_ms=10_000).stable()
    bench.broker.down = True
    bench.run(9_000)
    bench.broker.down = False
    bench.run(3_000)
    assert bench.take() == []
    assert bench.membership.generation == 1
    assert bench.broker.of("Heartbeat")[-1].generation_id == 1


def test_a_session_without_any_answer_ends_and_the_member_waits_for_kafka(member_bench):
    bench = member_bench(session_timeout_ms=10_000).stable()
    bench.broker.down = True
    bench.run(15_000)
    assert bench.kinds() == ["Lost", "JoinNeeded"]
    bench.join()
    bench.run(600_000, step=1_000)
    assert bench.take() == []
    bench.broker.down = False
    bench.run(2_000)
    assert bench.kinds() == ["Assigned"]


def test_kafka_that_never_answers_at_the_start_is_an_error_with_the_servers_and_the_reason(member_bench):
    bench = member_bench(unreachable_after_ms=5_000).asked()
    bench.broker.down = True
    bench.join()
    bench.run(7_000)
    [event] = bench.take()
    assert isinstance(event, Failed)
    assert isinstance(event.error, KafkaUnreachableError)
    assert "boot1,boot2" in str(event.error)
    assert "down" in str(event.error)
    assert {address.host for address in bench.broker.hosts} == {"boot1", "boot2"}


def test_an_owner_that_stops_polling_leaves_the_group_and_loses_its_tasks(member_bench):
    bench = member_bench(max_poll_interval_ms=10_000).stable()
    bench.run(11_000, poll=False)
    assert bench.kinds() == ["Lost", "JoinNeeded"]
    assert len(bench.broker.of("LeaveGroup")) == 1
    beats = len(bench.broker.of("Heartbeat"))
    bench.run(20_000, poll=False)
    assert len(bench.broker.of("Heartbeat")) == beats
    assert bench.joined() == ["Assigned"]


def test_a_static_member_whose_owner_stops_polling_falls_silent_instead_of_leaving(member_bench):
    bench = member_bench(max_poll_interval_ms=10_000, instance_id="i").stable()
    bench.run(11_000, poll=False)
    assert bench.kinds() == ["Lost", "JoinNeeded"]
    assert bench.broker.of("LeaveGroup") == []


def test_rejoin_requests_are_gathered_into_one_and_those_during_a_rebalance_come_after_it(bench):
    for _ in range(3):
        bench.machine.receive(Rejoin("released"))
    assert bench.take() == [JoinNeeded("released")]
    bench.join_held()
    bench.machine.receive(Rejoin("again"))
    bench.run()
    assert bench.take() == []
    assert bench.released() == ["Assigned", "JoinNeeded"]
    assert bench.broker.of("JoinGroup")[-1].reason == "released"


def test_a_restarted_static_leader_skips_the_assignment_and_gets_its_old_one(member_bench):
    bench = member_bench(instance_id="i").asked()
    bench.broker.skip_assignment, bench.broker.generation = True, 5
    bench.broker.stored = assignment_bytes(bench.ASSIGNED)
    bench.join()
    bench.run()
    assert bench.take() == [Assigned(5, "m-1", bench.ASSIGNED, leader=True)]
    assert bench.leader.seen == []
    assert bench.broker.of("SyncGroup")[0].assignments == ()
    assert bench.broker.of("JoinGroup")[0].group_instance_id == "i"


def test_a_restarted_static_member_that_has_changed_asks_for_a_new_assignment(member_bench):
    bench = member_bench(instance_id="i").asked()
    bench.broker.leader = "other"
    bench.broker.stored = assignment_bytes(replace(bench.ASSIGNED, profile=profile_of(bench.subscription(capacity=1))))
    assert bench.joined(capacity=4) == ["Assigned", "JoinNeeded"]


def test_a_leader_that_can_t_assign_fails_and_leaves_so_that_another_is_elected(member_bench):
    bench = member_bench().asked()
    bench.leader.error = MembershipError("another topology")
    bench.join()
    bench.run()
    assert bench.take() == [Failed(bench.leader.error)]
    assert len(bench.broker.of("LeaveGroup")) == 1


def test_a_member_that_the_leader_can_t_understand_is_told_so_and_the_rest_goes_on(member_bench):
    bench = member_bench().asked()
    bench.broker.others = {"alien": b"\0\3garbage"}
    assert bench.joined() == ["Assigned"]
    assert list(bench.leader.seen[0]) == ["m-1"]
    [told] = [a.assignment for a in bench.broker.of("SyncGroup")[0].assignments if a.member_id == "alien"]
    assert b"can't understand" in told


@pytest.mark.parametrize(("leave", "left"), [(True, 1), (False, 0)])
def test_closing_leaves_the_group_only_if_asked(leave, left, member_bench):
    bench = member_bench(instance_id="i").stable()
    waiting = bench.commit()
    bench.machine.receive(Close(leave))
    assert len(bench.broker.of("LeaveGroup")) == left
    assert isinstance(waiting.get(0), CommitRetriableError)
    assert bench.machine.run_once(bench.now) is False


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (ErrorCode.none, True), (ErrorCode.unknown_member_id, True), (ErrorCode.not_coordinator, False),
        (ConnectionLostError("gone"), False),
    ],
)  # fmt: skip
def test_a_member_has_left_once_the_coordinator_says_that_the_group_is_without_it(answer, left, member_bench):
    bench = member_bench(instance_id="i").stable()
    bench.broker.codes["LeaveGroup"] = [answer]
    assert bench.machine.left is False
    bench.machine.receive(Close(leave=True))
    assert bench.machine.left is left


def test_closing_while_kafka_is_down_ends_all_the_same(bench):
    bench.broker.down = True
    bench.machine.receive(Close(leave=True))
    assert bench.machine.state is MemberState.CLOSED
    assert bench.machine.left is False


def test_the_thread_may_sleep_until_the_next_heartbeat_and_looks_at_once_for_an_answer(bench):
    assert bench.machine.wait_ms(bench.now) == 3_000
    bench.join_held()
    assert bench.machine.wait_ms(bench.now) == 0
    bench.broker.down = True
    bench.run()
    assert bench.machine.wait_ms(bench.now) == bench.settings.retry_backoff_ms


def test_a_move_that_the_table_doesn_t_have_is_a_bug():
    with pytest.raises(AssertionError, match="CLOSED to STABLE"):
        check_move(MemberState.CLOSED, MemberState.STABLE)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (ErrorCode.group_authorization_failed, 2), (ErrorCode.invalid_session_timeout, 2),
        (ErrorCode.invalid_group_id, 2), (ErrorCode.inconsistent_group_protocol, 1),
        (ErrorCode.unknown_server_error, 1),
    ],
)  # fmt: skip
def test_a_missing_right_and_a_wrong_setting_end_with_the_exit_code_of_what_a_restart_doesn_t_mend(
    code: ErrorCode, exit_code: int
) -> None:
    assert failure(MemberSettings("g", {}), "JoinGroup", code).exit_code == exit_code
