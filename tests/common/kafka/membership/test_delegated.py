"""A membership that is used in another process than the member's: no sockets, no sleeps."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.errors import MembershipError
from milestones.common.kafka.membership import (
    BorrowedMembership,
    CommitRetriableError,
    LentMembership,
    MemberSettings,
    StaleGenerationError,
    group_metadata,
)
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.testing.clock import StepClock

OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(7, "m")}
HEARTBEAT, COMMIT = "Heartbeat", "OffsetCommit"


class Loan(BorrowedMembership):
    """One whose coordinator is in memory, on a step clock."""

    def __init__(self, bench: Any) -> None:
        self.broker, self.clock = bench.broker, StepClock()
        settings = MemberSettings("g", {"bootstrap.servers": "boot1:9092"}, session_timeout_ms=9_000)
        super().__init__(settings, LentMembership("m-1", 5), self.clock, self.broker.connect)

    def answers(self, request: str, *codes: ErrorCode) -> None:
        self.broker.codes[request] = list(codes)


@pytest.fixture
def loan(member_bench: Any) -> Loan:
    return Loan(member_bench())


def test_a_commit_goes_under_the_generation_that_was_lent(loan: Loan) -> None:
    loan.commit_offsets(OFFSETS, 1_000)
    (request,) = loan.broker.of("OffsetCommit")
    assert (request.generation_id_or_member_epoch, request.member_id) == (5, "m-1")
    assert loan.metadata() == group_metadata("g", 5, "m-1", None)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.fenced_instance_id,
    ],
)
def test_a_commit_under_a_generation_that_is_over_is_refused(loan: Loan, code: ErrorCode) -> None:
    loan.answers(COMMIT, code)
    with pytest.raises(StaleGenerationError):
        loan.commit_offsets(OFFSETS, 1_000)


def test_a_commit_is_tried_again_while_the_coordinator_moves(loan: Loan) -> None:
    loan.answers(COMMIT, ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)
    loan.commit_offsets(OFFSETS, 1_000)
    assert len(loan.broker.of("OffsetCommit")) == 3


def test_a_commit_that_nobody_answers_is_to_be_repeated(loan: Loan) -> None:
    loan.broker.down = True
    with pytest.raises(CommitRetriableError, match="1000 ms"):
        loan.commit_offsets(OFFSETS, 1_000)


def test_a_commit_that_can_never_succeed_is_an_error(loan: Loan) -> None:
    loan.answers(COMMIT, ErrorCode.offset_metadata_too_large)
    with pytest.raises(MembershipError):
        loan.commit_offsets(OFFSETS, 1_000)


def test_a_loan_is_confirmed_before_anything_is_done_under_it(loan: Loan) -> None:
    loan.answers(HEARTBEAT, ErrorCode.not_coordinator, ErrorCode.none)
    loan.confirm()
    (_, request) = loan.broker.of("Heartbeat")
    assert (request.generation_id, request.member_id) == (5, "m-1")


def test_a_loan_that_is_over_is_told_at_once(loan: Loan) -> None:
    loan.answers(HEARTBEAT, ErrorCode.illegal_generation)
    with pytest.raises(StaleGenerationError):
        loan.confirm()


def test_a_loan_that_nobody_confirms_for_a_session_doesnt_hold(loan: Loan) -> None:
    loan.broker.down = True
    with pytest.raises(StaleGenerationError, match="for a session"):
        loan.confirm()


def test_a_loan_may_be_checked_at_every_step_and_is_asked_about_once_in_an_interval(loan: Loan) -> None:
    loan.confirm()
    for _ in range(100):
        loan.check()
    assert len(loan.broker.of("Heartbeat")) == 1
    loan.clock.advance(3_000)
    loan.answers(HEARTBEAT, ErrorCode.illegal_generation)
    for _ in range(2):
        with pytest.raises(StaleGenerationError):
            loan.check()
    assert len(loan.broker.of("Heartbeat")) == 2


def test_the_session_is_asked_about_once_it_is_a_third_over(loan: Loan) -> None:
    assert not loan.session_over()
    assert loan.broker.of("Heartbeat") == []
    loan.clock.advance(3_001)
    assert not loan.session_over()
    assert not loan.session_over()
    assert len(loan.broker.of("Heartbeat")) == 1


def test_the_session_of_a_member_in_a_rebalance_goes_on_but_not_for_ever(loan: Loan) -> None:
    loan.answers(HEARTBEAT, *[ErrorCode.rebalance_in_progress] * 3)
    for _ in range(2):
        loan.clock.advance(3_001)
        assert not loan.session_over()
        assert not loan.session_over()
    loan.clock.advance(3_001)
    assert loan.session_over()
    assert len(loan.broker.of("Heartbeat")) == 3


def test_the_session_is_over_when_the_group_says_so_and_stays_over(loan: Loan) -> None:
    loan.answers(HEARTBEAT, ErrorCode.illegal_generation)
    loan.clock.advance(3_001)
    assert loan.session_over()
    assert loan.session_over()
    assert len(loan.broker.of("Heartbeat")) == 1


def test_the_session_is_over_when_nobody_has_answered_for_as_long(loan: Loan) -> None:
    loan.broker.down = True
    loan.clock.advance(3_001)
    assert not loan.session_over()
    loan.clock.advance(6_000)
    assert loan.session_over()
