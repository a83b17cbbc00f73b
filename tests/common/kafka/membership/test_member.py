from __future__ import annotations

import threading

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.errors import MembershipError
from milestones.common.kafka.membership import (
    Assigned,
    CommitRetriableError,
    Failed,
    Lost,
    StaleGenerationError,
)
from milestones.common.records import OffsetAndMetadata, TopicPartition

OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(7)}


def test_the_gate_is_shut_from_the_join_until_the_new_generation_is_there(alone):
    alone.asked()
    with pytest.raises(StaleGenerationError):
        alone.member.metadata()
    alone.broker.holds = {"JoinGroup"}
    alone.join()
    assert alone.member.joining()
    alone.broker.holds = set()
    assert isinstance(alone.next(), Assigned)
    assert not alone.member.joining()
    assert alone.member.metadata() == b"CGMDv2:\x01\0\0\0g\0m-1\0\x01"


def test_during_a_rebalance_the_old_generation_can_still_commit(alone):
    alone.joined().broker.holds = {"JoinGroup"}
    alone.join()
    alone.member.commit_offsets(OFFSETS, 5_000)
    assert alone.member.joining()
    assert b"\x01\0\0\0" in alone.member.metadata()


def test_a_request_to_join_that_crossed_our_join_is_not_shown(alone):
    alone.joined()
    alone.member.request_rejoin("please")
    alone.join()
    assert isinstance(alone.next(), Assigned)


def test_after_a_loss_the_gate_is_open_and_nothing_can_be_committed(alone):
    alone.joined().broker.codes["Heartbeat"] = [ErrorCode.unknown_member_id]
    events = []
    while not any(isinstance(event, Lost) for event in events):
        events += alone.member.poll()
    assert not alone.member.joining()
    for commit in (alone.member.metadata, lambda: alone.member.commit_offsets(OFFSETS, 1_000)):
        with pytest.raises(StaleGenerationError):
            commit()


def test_a_commit_that_gets_no_yes_in_time_is_to_be_asked_again(alone):
    alone.joined().broker.codes["OffsetCommit"] = [ErrorCode.coordinator_load_in_progress] * 1_000
    with pytest.raises(CommitRetriableError):
        alone.member.commit_offsets(OFFSETS, 30)


def test_an_empty_commit_asks_nobody(alone):
    alone.member.commit_offsets({}, 0)


def test_a_failed_member_says_why_to_everybody_who_asks(alone):
    alone.asked()
    alone.broker.codes["JoinGroup"] = [ErrorCode.invalid_session_timeout]
    alone.join()
    assert isinstance(alone.next(), Failed)
    assert not alone.member.joining()
    with pytest.raises(MembershipError, match="INVALID_SESSION_TIMEOUT"):
        alone.member.metadata()
    alone.member.close(leave=True)
    with pytest.raises(MembershipError, match="INVALID_SESSION_TIMEOUT"):
        alone.member.commit_offsets(OFFSETS, 1_000)
    alone.member.request_rejoin("harmless")


def test_a_bug_in_the_leader_ends_the_member_with_an_error_instead_of_silence(alone):
    alone.asked()
    alone.leader.error = ZeroDivisionError("oops")
    alone.join()
    event = alone.next()
    assert isinstance(event, Failed)
    assert "oops" in str(event.error)


def test_closing_ends_the_thread_and_may_be_repeated(alone):
    before = threading.active_count()
    alone.joined().member.close(leave=True)
    alone.member.close(leave=True)
    assert threading.active_count() == before - 1
    assert len(alone.broker.of("LeaveGroup")) == 1
    with pytest.raises(MembershipError):
        alone.join()
