"""What a recovery asks the group."""

from __future__ import annotations

import time
from typing import Any

import pytest

from milestones.common.errors import MembershipError
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.steps import to_the_end
from milestones.m3_fencing_tolerance.errors import NoAnswerError
from milestones.m3_fencing_tolerance.group_questions import GroupQuestions
from tests.milestones.m3_fencing_tolerance.tolerant import IN, TolerantWorld, numbered


@pytest.fixture
def world() -> TolerantWorld:
    return TolerantWorld()


def questions(world: TolerantWorld) -> GroupQuestions:
    clients: Any = world.clients
    return GroupQuestions(world.context, clients)


def test_committed_offsets_are_those_that_the_coordinator_tells(world: TolerantWorld) -> None:
    world.member.committed[IN] = numbered(3, 1)
    assert to_the_end(questions(world).committed([IN], 10)) == {IN: numbered(3, 1)}


def test_who_has_no_generation_asks_nothing(world: TolerantWorld) -> None:
    world.member.metadata_error = StaleGenerationError("none")
    with pytest.raises(StaleGenerationError):
        to_the_end(questions(world).committed([IN], 10))
    assert world.member.questions == []


def test_an_answer_is_waited_for_as_long_as_one_is_told(world: TolerantWorld) -> None:
    world.member.holds = True
    with pytest.raises(NoAnswerError, match="within 10 ms"):
        to_the_end(questions(world).committed([IN], 10))


def test_a_late_answer_is_not_taken_for_the_next_question(world: TolerantWorld) -> None:
    asked = questions(world)
    world.member.holds = True
    with pytest.raises(NoAnswerError):
        to_the_end(asked.committed([IN], 1))
    world.member.holds = False
    world.member.committed[IN] = numbered(9, 9)
    world.member.answer()
    world.member.committed[IN] = numbered(3, 1)
    assert to_the_end(asked.committed([IN], 10)) == {IN: numbered(3, 1)}


def test_a_member_that_the_group_still_knows_holds(world: TolerantWorld) -> None:
    assert to_the_end(questions(world).holds(10))


def test_a_member_that_joins_holds_until_the_answer_to_that(world: TolerantWorld) -> None:
    world.member.gate = world.member.holds = True
    assert to_the_end(questions(world).holds(10))
    assert world.member.questions == []


def test_a_member_that_is_lost_while_it_asks_does_not_hold(world: TolerantWorld) -> None:
    world.member.answer_error = StaleGenerationError("the group has removed this member")
    assert not to_the_end(questions(world).holds(10))


def test_a_member_whose_coordinator_is_silent_holds_as_long_as_its_session(world: TolerantWorld) -> None:
    world.member.holds = True
    assert to_the_end(questions(world).holds(10))
    world.member.silent = True
    assert not to_the_end(questions(world).holds(10))


def test_a_member_that_has_failed_for_good_ends_the_thread(world: TolerantWorld) -> None:
    world.member.answer_error = MembershipError("refused")
    with pytest.raises(MembershipError):
        to_the_end(questions(world).holds(10))


def test_a_thread_that_is_to_stop_does_not_wait_for_an_answer(world: TolerantWorld) -> None:
    world.member.holds = True
    world.context.retry_policy.hurry(0)
    began = time.monotonic()
    with pytest.raises(NoAnswerError):
        to_the_end(questions(world).committed([IN], 3_600_000))
    assert time.monotonic() - began < 60
