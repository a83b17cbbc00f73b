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


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def broker(member_bench: Any) -> Any:
    return member_bench().broker


@pytest.fixture
def borrowed(broker: Any, clock: StepClock) -> BorrowedMembership:
    settings = MemberSettings("g", {"bootstrap.servers": "boot1:9092"}, session_timeout_ms=9_000)
    return BorrowedMembership(settings, LentMembership("m-1", 5), clock, broker.connect)


def test_a_commit_goes_under_the_generation_that_was_lent(borrowed: BorrowedMembership, broker: Any) -> None:
    borrowed.commit_offsets(OFFSETS, 1_000)
    (request,) = broker.of("OffsetCommit")
    assert (request.generation_id_or_member_epoch, request.member_id) == (5, "m-1")
    assert borrowed.metadata() == group_metadata("g", 5, "m-1", None)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.fenced_instance_id,
    ],
)
def test_a_commit_under_a_generation_that_is_over_is_refused(
    borrowed: BorrowedMembership, broker: Any, code: ErrorCode
) -> None:
    broker.codes["OffsetCommit"] = [code]
    with pytest.raises(StaleGenerationError):
        borrowed.commit_offsets(OFFSETS, 1_000)


def test_a_commit_is_tried_again_while_the_coordinator_moves(borrowed: BorrowedMembership, broker: Any) -> None:
    broker.codes["OffsetCommit"] = [ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress]
    borrowed.commit_offsets(OFFSETS, 1_000)
    assert len(broker.of("OffsetCommit")) == 3


def test_a_commit_that_nobody_answers_is_to_be_repeated(borrowed: BorrowedMembership, broker: Any) -> None:
    broker.down = True
    with pytest.raises(CommitRetriableError, match="1000 ms"):
        borrowed.commit_offsets(OFFSETS, 1_000)


def test_a_commit_that_can_never_succeed_is_an_error(borrowed: BorrowedMembership, broker: Any) -> None:
    broker.codes["OffsetCommit"] = [ErrorCode.offset_metadata_too_large]
    with pytest.raises(MembershipError):
        borrowed.commit_offsets(OFFSETS, 1_000)


def test_a_loan_is_confirmed_before_anything_is_done_under_it(borrowed: BorrowedMembership, broker: Any) -> None:
    broker.codes["Heartbeat"] = [ErrorCode.not_coordinator, ErrorCode.none]
    borrowed.confirm()
    (_, request) = broker.of("Heartbeat")
    assert (request.generation_id, request.member_id) == (5, "m-1")


def test_a_loan_that_is_over_is_told_at_once(borrowed: BorrowedMembership, broker: Any) -> None:
    broker.codes["Heartbeat"] = [ErrorCode.illegal_generation]
    with pytest.raises(StaleGenerationError):
        borrowed.confirm()


def test_a_loan_that_nobody_confirms_for_a_session_doesnt_hold(borrowed: BorrowedMembership, broker: Any) -> None:
    broker.down = True
    with pytest.raises(StaleGenerationError, match="for a session"):
        borrowed.confirm()


def test_a_loan_may_be_checked_at_every_step_and_is_asked_about_once_in_an_interval(
    borrowed: BorrowedMembership, broker: Any, clock: StepClock
) -> None:
    borrowed.confirm()
    for _ in range(100):
        borrowed.check()
    assert len(broker.of("Heartbeat")) == 1
    clock.advance(3_000)
    broker.codes["Heartbeat"] = [ErrorCode.illegal_generation]
    for _ in range(2):
        with pytest.raises(StaleGenerationError):
            borrowed.check()
    assert len(broker.of("Heartbeat")) == 2


def test_the_session_is_asked_about_once_it_is_a_third_over(
    borrowed: BorrowedMembership, broker: Any, clock: StepClock
) -> None:
    assert not borrowed.session_over()
    assert broker.of("Heartbeat") == []
    clock.advance(3_001)
    assert not borrowed.session_over()
    assert not borrowed.session_over()
    assert len(broker.of("Heartbeat")) == 1


def test_the_session_of_a_member_in_a_rebalance_goes_on_but_not_for_ever(
    borrowed: BorrowedMembership, broker: Any, clock: StepClock
) -> None:
    broker.codes["Heartbeat"] = [ErrorCode.rebalance_in_progress] * 3
    for _ in range(2):
        clock.advance(3_001)
        assert not borrowed.session_over()
        assert not borrowed.session_over()
    clock.advance(3_001)
    assert borrowed.session_over()
    assert len(broker.of("Heartbeat")) == 3


def test_the_session_is_over_when_the_group_says_so_and_stays_over(
    borrowed: BorrowedMembership, broker: Any, clock: StepClock
) -> None:
    broker.codes["Heartbeat"] = [ErrorCode.illegal_generation]
    clock.advance(3_001)
    assert borrowed.session_over()
    assert borrowed.session_over()
    assert len(broker.of("Heartbeat")) == 1


def test_the_session_is_over_when_nobody_has_answered_for_as_long(
    borrowed: BorrowedMembership, broker: Any, clock: StepClock
) -> None:
    broker.down = True
    clock.advance(3_001)
    assert not borrowed.session_over()
    clock.advance(6_000)
    assert borrowed.session_over()
