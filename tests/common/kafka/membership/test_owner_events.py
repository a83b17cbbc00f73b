"""The owner hears of each thing once, and is asked to join by one event at a time."""

from __future__ import annotations

import pytest

from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.errors import MembershipError
from milestones.common.kafka.membership.events import (
    Assigned,
    Failed,
    Join,
    JoinNeeded,
    Lost,
    MemberEvent,
    Membership,
)
from milestones.common.kafka.membership.owner_events import OwnerEvents

SUBSCRIPTION = Subscription(process_id="p", stage="baseline", capacity=1, topics=("in",), fingerprint="f")


class Owner:
    """Hears what a member tells: `events` with the number of the join that they come after."""

    def __init__(self) -> None:
        self.events: list[tuple[MemberEvent, int]] = []
        self.membership = Membership()
        self.sender = OwnerEvents(lambda event, joins: self.events.append((event, joins)), self._publish)

    def _publish(self, membership: Membership) -> None:
        self.membership = membership

    def answer(self, number: int) -> str:
        return self.sender.taken(Join(number, self.membership.losses, SUBSCRIPTION))

    def heard(self) -> list[MemberEvent]:
        events, self.events = self.events, []
        return [event for event, _ in events]


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def joined(owner: Owner) -> Owner:
    owner.sender.ask("the start")
    owner.answer(1)
    owner.sender.assigned(7, "m", Assignment(), leads=True)
    return owner


def test_reasons_are_gathered_until_the_owner_answers_and_the_first_is_the_one_told(owner: Owner) -> None:
    owner.sender.ask("one")
    owner.sender.ask("two")
    assert owner.heard() == [JoinNeeded("one")]
    assert owner.answer(1) == "one"
    owner.sender.ask("three")
    assert owner.heard() == [JoinNeeded("three")]


def test_a_join_that_nobody_asked_for_has_a_reason_too(owner: Owner) -> None:
    assert owner.answer(1) == "asked by the owner"


def test_a_new_generation_is_published_before_its_event_and_both_name_the_join(joined: Owner) -> None:
    assert joined.membership == Membership(generation=7, member_id="m", joins=1)
    assert joined.events[-1] == (Assigned(7, "m", Assignment(), True), 1)


def test_a_wish_during_a_rebalance_is_asked_for_after_it_and_only_then(owner: Owner) -> None:
    owner.answer(1)
    owner.sender.ask_once_assigned("a new topic")
    assert owner.heard() == []
    owner.sender.assigned(1, "m", Assignment(), leads=False)
    assert owner.heard() == [Assigned(1, "m", Assignment(), False), JoinNeeded("a new topic")]


def test_a_loss_ends_the_generation_and_asks_the_owner_to_join_anew(joined: Owner) -> None:
    joined.heard()
    joined.sender.lost("gone")
    assert joined.heard() == [Lost("gone"), JoinNeeded("gone")]
    assert joined.membership == Membership(generation=-1, member_id="", joins=1, losses=1)


def test_where_there_is_nothing_to_lose_no_loss_is_told(owner: Owner) -> None:
    owner.sender.lost("gone")
    assert owner.heard() == [JoinNeeded("gone")]
    assert owner.membership.losses == 0


def test_an_answer_from_before_a_loss_counts_as_seen_and_changes_nothing_else(joined: Owner) -> None:
    joined.sender.lost("gone")
    joined.sender.stale(Join(2, 0, SUBSCRIPTION))
    assert joined.membership == Membership(generation=-1, member_id="", joins=2, losses=1)


def test_a_failure_is_published_with_its_error(joined: Owner) -> None:
    joined.heard()
    error = MembershipError("for good")
    joined.sender.failed(error)
    assert joined.heard() == [Failed(error)]
    assert joined.membership == Membership(generation=-1, member_id="", joins=1, error=error)
