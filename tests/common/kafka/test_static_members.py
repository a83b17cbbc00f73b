"""Static members that leave because their instance won't use them: a coordinator in memory first, then a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.describe_groups.v5 import DescribeGroupsResponse
from kio.schema.describe_groups.v5.response import DescribedGroupMember
from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5 import LeaveGroupResponse
from kio.schema.leave_group.v5.response import MemberResponse

from milestones.common.assignment.model import Subscription
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.membership.protocol import subscription_bytes
from milestones.common.kafka.static_members import StaticMembers
from tests.common.kafka.fake_broker import ZERO
from tests.common.kafka.membership.test_real_broker import Owner, drive, silence
from tests.common.kafka.test_groups import SETTINGS, away_for_a_moment, described
from tests.common.kafka.test_groups import Broker as DescribedBroker
from tests.topics import new_topic

OURS, OTHERS, ANOTHER_PROGRAM = "ours", "others", b"\0\0range"


class Broker(DescribedBroker):
    """Its LeaveGroup has an answer for each member: `unknown` ones aren't in the group."""

    unknown: frozenset[str] = frozenset()

    def _LeaveGroup(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        members = tuple(
            MemberResponse(
                member_id="", group_instance_id=member.group_instance_id,
                error_code=ErrorCode.unknown_member_id if member.group_instance_id in self.unknown else ErrorCode.none,
            )
            for member in request.members
        )  # fmt: skip
        return LeaveGroupResponse(throttle_time=ZERO, error_code=code, members=members)

    def members(self) -> StaticMembers:
        return StaticMembers(SETTINGS, "g", timeout_ms=1_000, connect=self.connect, clock=self.clock)

    def left(self) -> list[set[tuple[str, str]]]:
        """The members of each LeaveGroup, by instance id and member id."""
        return [{(m.group_instance_id, m.member_id) for m in request.members} for request in self.of("LeaveGroup")]


def member(instance_id: str | None, metadata: str | bytes) -> DescribedGroupMember:
    """`metadata`: the process id in it, or the bytes of another program."""
    if isinstance(metadata, str):
        said = Subscription(process_id=metadata, stage="m3", capacity=1, topics=("in",), fingerprint="f")
        metadata = subscription_bytes(said, (), 2)
    return DescribedGroupMember(
        member_id="m", client_id="c", client_host="/10.0.0.1", group_instance_id=instance_id, member_metadata=metadata,
        member_assignment=b"",
    )  # fmt: skip


def found(answer: DescribeGroupsResponse, *known: str) -> frozenset[str]:
    with closing(Broker(answer).members()) as members:
        return members.of(OURS, frozenset(known))


def test_the_static_members_of_a_process_are_known_by_the_process_id_in_their_metadata() -> None:
    group = described(
        member("one-1", OURS), member("one-2", OURS), member(None, OURS), member("two-1", OTHERS),
        member("x", ANOTHER_PROGRAM),
    )  # fmt: skip
    assert found(group) == {"one-1", "one-2"}


def test_an_id_that_another_instance_has_by_now_is_not_taken_from_it() -> None:
    """Two instances had one `group_instance_id`; the one that was fenced starts again with another."""
    assert found(described(member("one-1", OTHERS), member("x", ANOTHER_PROGRAM)), "one-1", "x") == frozenset()


def test_while_the_group_rebalances_and_tells_no_metadata_the_ids_that_were_written_down_count() -> None:
    group = described(member("one-1", b""), member("two-1", b""), state="PreparingRebalance")
    assert found(group, "one-1", "one-2") == {"one-1"}


def test_a_group_that_is_no_more_has_no_member() -> None:
    assert found(described(state="Dead"), "one-1") == frozenset()


def test_members_leave_by_their_static_ids_in_one_request_and_one_that_has_left_is_no_error() -> None:
    broker = Broker()
    broker.unknown = frozenset({"one-3"})
    with closing(broker.members()) as members:
        members.remove({"one-2", "one-3"})
    assert broker.left() == [{("one-2", ""), ("one-3", "")}]
    assert broker.open() == 0


@away_for_a_moment
def test_a_coordinator_that_is_away_for_a_moment_is_asked_again(trouble: ErrorCode | Exception) -> None:
    broker = Broker(FindCoordinator=[trouble], LeaveGroup=[trouble])
    with closing(broker.members()) as members:
        members.remove({"one-2"})
    assert broker.names() == ["FindCoordinator", *["FindCoordinator", "LeaveGroup"] * 2]


def test_a_coordinator_that_stays_away_is_unreachable_and_the_error_says_who_cannot_leave() -> None:
    broker = Broker(LeaveGroup=[ErrorCode.coordinator_not_available] * 100)
    expected = r"static members one-2, one-3 of the group g .*'b:1' .*within 1 s: .*coordinator_not.*brokers are up"
    with closing(broker.members()) as members, pytest.raises(KafkaUnreachableError, match=expected):
        members.remove({"one-3", "one-2"})
    assert broker.clock.monotonic_ms() == 1_000


def test_members_that_may_not_be_removed_are_an_error_at_once() -> None:
    broker = Broker(LeaveGroup=[ErrorCode.group_authorization_failed])
    with (
        closing(broker.members()) as members,
        pytest.raises(MilestonesError, match=r"group_authorization_failed; check that this principal may read"),
    ):
        members.remove({"one-2"})


PATIENT: dict[str, Any] = {"session_timeout_ms": 60_000, "max_poll_interval_ms": 60_000}
"""Longer than the test: nothing in it waits for a session to end."""


@pytest.fixture
def group(kafka: str) -> str:
    """A group id that is also the name of a topic with 4 partitions."""
    return new_topic(kafka, partitions=4)


@pytest.fixture
def owners(kafka: str, group: str) -> Iterator[list[Owner]]:
    """Two instances: one with the members `ours-1` and `ours-2`, another with `others-1`. All have tasks."""
    with ExitStack() as closing_all:
        made = []
        for process, number in ((OURS, 1), (OURS, 2), (OTHERS, 1)):
            id = f"{process}-{number}"
            owner = Owner({"bootstrap.servers": kafka}, group, id, instance_id=id, **PATIENT)
            owner.me = replace(owner.me, process_id=process)
            made.append(owner)
            closing_all.callback(owner.member.close, leave=True)
        drive(lambda: all(owner.active for owner in made) and sum(len(owner.active) for owner in made) == 4, *made)
        yield made


@pytest.fixture
def members(kafka: str, group: str) -> Iterator[StaticMembers]:
    with closing(StaticMembers({"bootstrap.servers": kafka}, group, timeout_ms=30_000)) as members:
        yield members


@pytest.mark.kafka
def test_a_member_whose_thread_is_gone_leaves_and_the_others_have_its_tasks_at_once(
    owners: list[Owner], members: StaticMembers
) -> None:
    first, gone, other = owners
    silence(gone)
    assert members.of(OURS, frozenset()) == {"ours-1", "ours-2"}
    assert members.of(OTHERS, frozenset()) == {"others-1"}
    began = time.monotonic()
    members.remove({"ours-2", "never-there"})
    drive(lambda: len(first.active) + len(other.active) == 4, first, other)
    print(f"the others had its tasks after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began < PATIENT["session_timeout_ms"] / 1000 / 2
    assert members.of(OURS, frozenset()) == {"ours-1"}
    members.remove({"ours-2"})


@pytest.mark.kafka
def test_a_member_can_be_removed_while_the_group_waits_for_it_in_a_rebalance(
    owners: list[Owner], members: StaticMembers
) -> None:
    first, gone, other = owners
    silence(gone)
    other.member.request_rejoin("a rebalance that the silent member doesn't take part in")
    drive(lambda: members.describe().state == "PreparingRebalance", first, other)
    assert members.of(OURS, frozenset({"ours-2"})) == {"ours-2"}
    members.remove({"ours-2"})
    drive(lambda: len(first.active) + len(other.active) == 4, first, other)


@pytest.mark.kafka
def test_members_of_a_group_that_never_was_are_gone_already(kafka: str) -> None:
    with closing(StaticMembers({"bootstrap.servers": kafka}, "never-was", timeout_ms=30_000)) as members:
        assert members.of(OURS, frozenset({"ours-1"})) == frozenset()
        members.remove({"ours-1", "ours-2"})
