"""A group asked from outside for offsets and members: a coordinator in memory first, then a broker that just began."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from kio.schema.describe_groups.v5 import DescribeGroupsResponse
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribedGroupMember
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from milestones.common.errors import KafkaUnreachableError, MilestonesError, SecurityError
from milestones.common.kafka.groups import GroupReader, the_address
from milestones.common.kafka.topics import Cluster
from milestones.common.kafka.wire import ConnectionLostError
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.testing import StepClock
from tests.common.kafka.fake_broker import NONE, ZERO, FakeBroker
from tests.topics import commit, new_topic

IN, OTHER, GONE = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("gone", 0)
SETTINGS = {"bootstrap.servers": "b:1"}

away_for_a_moment = pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ConnectionLostError("c:1: gone"),
    ],
)
"""Each of the ways in which a coordinator says that it doesn't serve the group just now."""


class Broker(FakeBroker):
    """A coordinator of a group that has committed offset 7 of one partition; `descriptions` of it, one a request."""

    def __init__(self, *descriptions: DescribeGroupsResponse, **codes: list[ErrorCode | Exception]) -> None:
        super().__init__()
        self.committed[IN] = 7
        self.refused["gone"] = ErrorCode.unknown_topic_or_partition
        self.codes.update(codes)
        self.descriptions, self.clock = list(descriptions), StepClock()

    def _DescribeGroups(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        return self.descriptions.pop(0)

    def offsets(self, *partitions: TopicPartition, every: bool = False) -> dict[TopicPartition, int]:
        with closing(self.reader()) as reader:
            return reader.committed(None if every else partitions)

    def reader(self) -> GroupReader:
        return GroupReader(SETTINGS, "g", timeout_ms=1_000, connect=self.connect, clock=self.clock)


def test_only_partitions_with_an_offset_are_in_the_answer() -> None:
    broker = Broker()
    assert broker.offsets(IN, OTHER, GONE) == {IN: 7}
    assert broker.open() == 0
    [request] = broker.of("OffsetFetch")
    assert not request.require_stable
    asked = {topic.name: topic.partition_indexes for topic in request.groups[0].topics}
    assert asked == {"in": (0, 1), "gone": (0,)}


def test_without_partitions_all_of_the_group_are_asked() -> None:
    broker = Broker()
    assert broker.offsets(every=True) == {IN: 7}
    assert broker.of("OffsetFetch")[0].groups[0].topics is None


@away_for_a_moment
def test_a_coordinator_that_is_not_there_yet_is_asked_again(trouble: ErrorCode | Exception) -> None:
    broker = Broker(FindCoordinator=[trouble], OffsetFetch=[trouble])
    assert broker.offsets(IN) == {IN: 7}
    assert broker.names() == ["FindCoordinator", *["FindCoordinator", "OffsetFetch"] * 2]
    assert broker.open() == 0


@pytest.mark.parametrize("trouble", [ErrorCode.coordinator_not_available, ConnectionLostError("c:1: refused")])
def test_when_time_is_up_the_error_tells_the_last_reason(trouble: ErrorCode | Exception) -> None:
    broker = Broker(FindCoordinator=[trouble] * 100)
    with pytest.raises(KafkaUnreachableError, match=r"group g .*'b:1' .*within 1 s: .*(coordinator_not|c:1: refused)"):
        broker.offsets(IN)
    assert (broker.open(), broker.clock.monotonic_ms()) == (0, 1_000)


@pytest.mark.parametrize("of_the_group", [True, False])
def test_a_right_that_is_missing_ends_it_at_once_as_a_wrong_setting_does(of_the_group: bool) -> None:
    broker = Broker(OffsetFetch=[ErrorCode.group_authorization_failed] if of_the_group else [])
    broker.refused["in"] = ErrorCode.topic_authorization_failed
    with pytest.raises(SecurityError, match=r"authorization_failed; check that this principal may describe") as refused:
        broker.offsets(IN)
    assert refused.value.exit_code == 2
    assert (broker.open(), broker.clock.monotonic_ms()) == (0, 0)


@pytest.mark.kafka
def test_a_broker_that_has_just_begun_tells_that_nothing_is_committed(tmp_path: Path) -> None:
    from milestones.common.kafka.embedded import EmbeddedKafka

    with EmbeddedKafka(tmp_path) as broker:
        cluster = Cluster({"bootstrap.servers": broker.bootstrap_servers})
        assert "__consumer_offsets" not in cluster.partition_counts()
        assert cluster.committed("new") == {}
        assert cluster.committed("new", [IN]) == {}


@pytest.mark.kafka
def test_offsets_that_another_client_committed_are_told(kafka: str) -> None:
    cluster = Cluster({"bootstrap.servers": kafka})
    topic = new_topic(kafka, partitions=2)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic})
    commit(consumer, [Position(topic, 1, 5, "a note")])
    consumer.close()
    expected = {TopicPartition(topic, 1): 5}
    assert cluster.committed(topic) == expected
    assert cluster.committed(topic, [TopicPartition(topic, i) for i in range(2)]) == expected


def test_stable_offsets_come_with_their_metadata_once_no_transaction_pends() -> None:
    broker = Broker(OffsetFetch=[ErrorCode.unstable_offset_commit])
    reader = broker.reader()
    assert reader.stable([IN, OTHER]) == {IN: OffsetAndMetadata(7, "x")}
    assert [request.require_stable for request in broker.of("OffsetFetch")] == [True, True]
    reader.close()


def described(*members: DescribedGroupMember, state: str = "Stable", code: ErrorCode = NONE) -> DescribeGroupsResponse:
    group: Any = DescribedGroup(
        error_code=code, group_id=GroupId("g"), group_state=state, protocol_type="consumer",
        protocol_data="milestones-v2", members=members,
    )  # fmt: skip
    return DescribeGroupsResponse(throttle_time=ZERO, groups=(group,))


def test_a_group_is_described_with_the_bytes_of_its_members() -> None:
    one = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/10.0.0.1", member_metadata=b"said", member_assignment=b"got"
    )
    broker = Broker(described(one, code=ErrorCode.coordinator_load_in_progress), described(one))
    reader = broker.reader()
    group = reader.describe()
    assert (group.state, group.protocol, group.protocol_type) == ("Stable", "milestones-v2", "consumer")
    (member,) = group.members
    assert (member.id, member.host, member.metadata, member.assignment) == ("m", "10.0.0.1", b"said", b"got")
    reader.close()
    assert broker.open() == 0


def test_a_group_that_may_not_be_described_is_an_error_at_once() -> None:
    with pytest.raises(MilestonesError, match=r"group g can't be described: .*group_authorization_failed"):
        Broker(described(code=ErrorCode.group_authorization_failed)).reader().describe()


def test_a_default_address_that_does_not_answer_is_called_the_default() -> None:
    assert "is the default, where bootstrap_servers isn't given" in the_address("localhost:9092")
    assert the_address("kafka:9092") == "the address"
