"""Questions for committed offsets: whoever is answered was a member after it asked."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.errors import MembershipError
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.kafka.membership.events import Close
from tests.common.kafka.fake_broker import LOSSES


def test_a_heartbeat_goes_before_the_question(bench):
    bench.broker.requests.clear()
    assert bench.answer(bench.fetch()).error is None
    assert bench.broker.names()[-2:] == ["Heartbeat", "OffsetFetch"]


@pytest.mark.parametrize("code", LOSSES)
def test_who_is_no_member_any_more_is_told_so_and_no_offsets(code, bench):
    bench.broker.codes["Heartbeat"] = [code]
    assert isinstance(bench.answer(bench.fetch()).error, StaleGenerationError)
    assert bench.broker.of("OffsetFetch") == []
    assert bench.kinds() == ["Lost", "JoinNeeded"]


def test_a_heartbeat_without_an_answer_is_repeated_before_the_question(bench):
    bench.broker.codes["Heartbeat"] = [ErrorCode.coordinator_not_available]
    assert bench.answer(bench.fetch(), 1_000).error is None
    assert [name for name in bench.broker.names() if name in {"Heartbeat", "OffsetFetch"}] == [
        "Heartbeat", "Heartbeat", "OffsetFetch",
    ]  # fmt: skip


def test_a_rebalance_that_has_begun_does_not_keep_the_answer_back(bench):
    bench.broker.codes["Heartbeat"] = [ErrorCode.rebalance_in_progress]
    assert bench.answer(bench.fetch()).error is None
    assert bench.kinds() == ["JoinNeeded"]


@pytest.mark.parametrize("joining", [False, True])
def test_a_question_that_is_refused_is_answered_with_the_reason_and_what_to_do(joining, bench):
    if joining:
        bench.join_held()
    bench.broker.refused["in"] = ErrorCode.topic_authorization_failed
    error = bench.answer(bench.fetch(), 10_000).error
    assert isinstance(error, MembershipError)
    assert "OffsetFetch of in: TOPIC_AUTHORIZATION_FAILED" in str(error)
    assert "grant the user READ" in str(error)
    assert len(bench.broker.of("OffsetFetch")) == 1, "asked once"
    assert bench.kinds() == []


@pytest.mark.parametrize("code", [ErrorCode.coordinator_load_in_progress, ErrorCode.network_exception])
def test_a_question_that_fails_in_passing_is_asked_again_and_sends_no_second_join(code, bench):
    bench.join_held()
    bench.broker.codes["OffsetFetch"] = [code] * 3
    assert bench.answer(bench.fetch(), 10_000).error is None
    assert bench.released() == ["Assigned"]
    assert len(bench.broker.of("JoinGroup")) == 2, "the first one's and this one"


def test_a_topic_that_the_coordinator_does_not_know_has_no_offset(bench):
    bench.broker.refused["in"] = ErrorCode.unknown_topic_or_partition
    assert bench.answer(bench.fetch()).error is None


def test_a_question_to_a_member_that_has_ended_is_answered(bench):
    bench.machine.receive(Close(leave=False))
    assert isinstance(bench.fetch().get(0).error, StaleGenerationError)
