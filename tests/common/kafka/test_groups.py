"""A group asked from outside for offsets and members: a coordinator in memory first, then a broker that just began."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from kio.schema.describe_groups.v5 import DescribeGroupsRequest, DescribeGroupsResponse
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribedGroupMember
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import Coordinator, FindCoordinatorResponse
from kio.schema.offset_fetch.v8.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kio.schema.types import GroupId
from kio.static.primitive import i32Timedelta

from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.groups import GroupReader, committed_offsets, the_address
from milestones.common.kafka.topics import Cluster
from milestones.common.kafka.wire import ConnectionLostError
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.testing import StepClock
from tests.topics import commit, new_topic

IN, OTHER, GONE = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("in", 2)
NONE, ZERO = ErrorCode.none, i32Timedelta.parse(timedelta())


class Broker:
    """A coordinator that first gives the `troubles`, one a request; `open`: its connections."""

    def __init__(self, *troubles: ErrorCode | Exception, of_partition: ErrorCode = NONE) -> None:
        self.troubles, self.of_partition = list(troubles), of_partition
        self.open = 0
        self.asked: list[Any] = []
        self.clock = StepClock()

    def connect(self, address: object) -> Any:
        self.open += 1
        return self

    def close(self) -> None:
        self.open -= 1

    def call(self, request: Any, answer: object, timeout_ms: int) -> Any:
        trouble = self.troubles.pop(0) if self.troubles else NONE
        if isinstance(trouble, Exception):
            raise trouble
        if isinstance(request, FindCoordinatorRequest):
            found: Any = Coordinator(key="g", node_id=1, host="c", port=1, error_code=trouble, error_message="")  # type: ignore[arg-type]
            return FindCoordinatorResponse(throttle_time=ZERO, coordinators=(found,))
        self.asked.append(request)
        rows: list[Any] = [(0, 7, NONE), (1, -1, NONE), (2, -1, ErrorCode.unknown_topic_or_partition)]
        if self.of_partition is not NONE:
            rows.append((3, -1, self.of_partition))
        partitions = tuple(
            OffsetFetchResponsePartitions(partition_index=i, committed_offset=at, metadata="x", error_code=code)
            for i, at, code in rows
        )
        topics: Any = (OffsetFetchResponseTopics(name="in", partitions=partitions),)  # type: ignore[arg-type]
        group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=trouble)  # type: ignore[arg-type]
        return OffsetFetchResponse(throttle_time=ZERO, groups=(group,))

    def offsets(self, *partitions: TopicPartition, every: bool = False) -> dict[TopicPartition, int]:
        return committed_offsets(
            {"bootstrap.servers": "b:1"},
            "g",
            None if every else partitions,
            timeout_ms=1_000,
            connect=self.connect,
            clock=self.clock,
        )


def test_only_partitions_with_an_offset_are_in_the_answer() -> None:
    broker = Broker()
    assert broker.offsets(IN, OTHER, GONE) == {IN: 7}
    assert broker.open == 0
    [request] = broker.asked
    assert not request.require_stable
    assert request.groups[0].topics[0].partition_indexes == (0, 1, 2)


def test_without_partitions_all_of_the_group_are_asked() -> None:
    broker = Broker()
    assert broker.offsets(every=True) == {IN: 7}
    assert broker.asked[0].groups[0].topics is None


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ConnectionLostError("c:1: gone"),
    ],
)
def test_a_coordinator_that_is_not_there_yet_is_asked_again(trouble: ErrorCode | Exception) -> None:
    broker = Broker(trouble, NONE, trouble)
    assert broker.offsets(IN) == {IN: 7}
    assert broker.open == 0


@pytest.mark.parametrize("trouble", [ErrorCode.coordinator_not_available, ConnectionLostError("c:1: refused")])
def test_when_time_is_up_the_error_tells_the_last_reason(trouble: ErrorCode | Exception) -> None:
    broker = Broker(*[trouble] * 100)
    with pytest.raises(KafkaUnreachableError, match=r"group g .*'b:1' .*within 1 s: .*(coordinator_not|c:1: refused)"):
        broker.offsets(IN)
    assert (broker.open, broker.clock.monotonic_ms()) == (0, 1_000)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Broker(NONE, ErrorCode.group_authorization_failed),
        lambda: Broker(of_partition=ErrorCode.topic_authorization_failed),
    ],
)
def test_a_refusal_is_an_error_at_once(make: Callable[[], Broker]) -> None:
    broker = make()
    with pytest.raises(MilestonesError, match=r"authorization_failed; check that this principal may describe"):
        broker.offsets(IN)
    assert (broker.open, broker.clock.monotonic_ms()) == (0, 0)


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
    broker = Broker(NONE, ErrorCode.unstable_offset_commit)
    settings = {"bootstrap.servers": "b:1"}
    reader = GroupReader(settings, "g", timeout_ms=1_000, connect=broker.connect, clock=broker.clock)
    assert reader.stable([IN, OTHER]) == {IN: OffsetAndMetadata(7, "x")}
    assert [request.require_stable for request in broker.asked] == [True, True]
    reader.close()


def described(*members: DescribedGroupMember, state: str = "Stable", code: ErrorCode = NONE) -> DescribeGroupsResponse:
    group: Any = DescribedGroup(
        error_code=code, group_id=GroupId("g"), group_state=state, protocol_type="consumer",
        protocol_data="milestones-v2", members=members,
    )  # fmt: skip
    return DescribeGroupsResponse(throttle_time=ZERO, groups=(group,))


class Describing(Broker):
    """Gives these descriptions, one a request."""

    def __init__(self, *answers: DescribeGroupsResponse) -> None:
        super().__init__()
        self.answers = list(answers)

    def call(self, request: Any, answer: object, timeout_ms: int) -> Any:
        return self.answers.pop(0) if isinstance(request, DescribeGroupsRequest) else super().call(request, answer, 1)

    def reader(self) -> GroupReader:
        settings = {"bootstrap.servers": "b:1"}
        return GroupReader(settings, "g", timeout_ms=1_000, connect=self.connect, clock=self.clock)


def test_a_group_is_described_with_the_bytes_of_its_members() -> None:
    one = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/10.0.0.1", member_metadata=b"said", member_assignment=b"got"
    )
    broker = Describing(described(one, code=ErrorCode.coordinator_load_in_progress), described(one))
    reader = broker.reader()
    group = reader.describe()
    assert (group.state, group.protocol, group.protocol_type) == ("Stable", "milestones-v2", "consumer")
    (member,) = group.members
    assert (member.id, member.host, member.metadata, member.assignment) == ("m", "10.0.0.1", b"said", b"got")
    reader.close()
    assert broker.open == 0


def test_a_group_that_may_not_be_described_is_an_error_at_once() -> None:
    with pytest.raises(MilestonesError, match=r"group g can't be described: .*group_authorization_failed"):
        Describing(described(code=ErrorCode.group_authorization_failed)).reader().describe()


def test_a_default_address_that_does_not_answer_is_called_the_default() -> None:
    assert "is the default, where bootstrap_servers isn't given" in the_address("localhost:9092")
    assert the_address("kafka:9092") == "the address"
