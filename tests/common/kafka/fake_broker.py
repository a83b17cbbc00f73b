"""A coordinator in memory: what it answers to each request of a group's members and of who asks about a group."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

from kio.schema.describe_groups.v5 import DescribeGroupsResponse
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribedGroupMember
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.response import Coordinator as FoundCoordinator
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.heartbeat.v4 import HeartbeatResponse
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.leave_group.v5 import LeaveGroupResponse
from kio.schema.offset_commit.v8.response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kio.schema.offset_fetch.v8.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kio.schema.sync_group.v5 import SyncGroupResponse
from kio.static.primitive import i32Timedelta

from milestones.common.kafka.membership.reactions import TABLE, Reaction
from milestones.common.kafka.wire import ConnectionLostError
from milestones.common.kafka.wire_settings import Address

NONE = ErrorCode.none
ZERO = i32Timedelta.parse(timedelta())
LOSSES = [ErrorCode.illegal_generation, ErrorCode.unknown_member_id]


def codes_of(*reactions: Reaction) -> list[ErrorCode]:
    return [code for code, (reaction, _) in TABLE.items() if reaction in reactions]


def name_of(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")


class FakeBroker:
    """Answers every request well, unless told otherwise by `codes` (of the next requests of a name, in turn; an error
    is raised), `refused` (of a topic's offsets), `down` or `holds`. While it holds a JoinGroup its group rebalances.
    What `swallows` names gets lost: no answer comes, no connection breaks. `committed`: by topic and partition."""

    def __init__(self) -> None:
        self.codes: dict[str, list[ErrorCode | Exception]] = defaultdict(list)
        self.down = False
        self.refused: dict[str, ErrorCode] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.holds: set[str] = set()
        self.swallows: set[str] = set()
        self.wires: list[FakeWire] = []
        self.looks = 0
        self.hosts: list[Address] = []
        self.requests: list[Any] = []
        self.coordinator = Address("coord", 9092)
        self.generation = 0
        self.leader: str | None = None
        self.member_id = "m-1"
        self.skip_assignment = False
        self.stored: bytes = b""
        self.metadata: bytes = b""
        self.others: dict[str, bytes] = {}
        self.selected: str | None = None
        self.described = "milestones-v1"

    def connect(self, address: Address) -> FakeWire:
        self.hosts.append(address)
        self.check()
        self.wires.append(FakeWire(self))
        return self.wires[-1]

    def open(self) -> int:
        """How many connections are open."""
        return sum(not wire.closed for wire in self.wires)

    def swallowed(self, request: Any) -> bool:
        return name_of(request) in self.swallows

    def rebalances(self) -> bool:
        wires = [wire for wire in self.wires if not (wire.closed or wire.dead)]
        waiting = [one for wire in wires for one in wire.sent if not self.swallowed(one)]
        return "JoinGroup" in map(name_of, waiting)

    def check(self) -> None:
        if self.down:
            raise ConnectionLostError("down")

    def names(self) -> list[str]:
        return list(map(name_of, self.requests))

    def of(self, name: str) -> list[Any]:
        return [request for request in self.requests if name_of(request) == name]

    def handle(self, request: Any) -> Any:
        self.check()
        self.requests.append(request)
        name = name_of(request)
        code = self.codes[name].pop(0) if self.codes[name] else NONE
        if isinstance(code, Exception):
            raise code
        return getattr(self, f"_{name}")(request, code)

    def _FindCoordinator(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        host, port = self.coordinator
        found = FoundCoordinator(key="g", node_id=1, host=host, port=port, error_code=code, error_message=None)  # type: ignore[arg-type]
        return FindCoordinatorResponse(throttle_time=ZERO, coordinators=(found,))

    def _JoinGroup(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        if code is NONE and not self.skip_assignment:
            self.generation += 1
        (chosen,) = [p for p in request.protocols if p.name == (self.selected or request.protocols[0].name)]
        self.metadata = chosen.metadata
        members = {self.member_id: self.metadata, **self.others}
        leader = self.leader or self.member_id
        return JoinGroupResponse(
            throttle_time=ZERO,
            error_code=code,
            generation_id=self.generation,  # type: ignore[arg-type]
            protocol_type="consumer",
            protocol_name=chosen.name,
            leader=leader,
            skip_assignment=self.skip_assignment,
            member_id=self.member_id,
            members=tuple(
                JoinGroupResponseMember(member_id=name, group_instance_id=None, metadata=data)
                for name, data in members.items()
            )
            if leader == self.member_id
            else (),
        )

    def _SyncGroup(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        given = {a.member_id: a.assignment for a in request.assignments}
        self.stored = given.get(request.member_id, self.stored)
        return SyncGroupResponse(
            throttle_time=ZERO,
            error_code=code,
            protocol_type="consumer",
            protocol_name="milestones-v1",
            assignment=self.stored,
        )

    def _Heartbeat(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        if code is NONE and self.rebalances():
            code = ErrorCode.rebalance_in_progress
        return HeartbeatResponse(throttle_time=ZERO, error_code=code)

    def _LeaveGroup(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        return LeaveGroupResponse(throttle_time=ZERO, error_code=code, members=())

    def _DescribeGroups(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        members: Any = tuple(
            DescribedGroupMember(
                member_id=name, group_instance_id=None, client_id=name, client_host="/10.0.0.7", member_metadata=data,
                member_assignment=b"",
            )
            for name, data in self.others.items()
        )  # fmt: skip
        group: Any = DescribedGroup(
            error_code=code, group_id=request.groups[0], group_state="Stable", protocol_type="consumer",
            protocol_data=self.described, members=members,
        )  # fmt: skip
        return DescribeGroupsResponse(throttle_time=ZERO, groups=(group,))

    def _OffsetCommit(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        topics = tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=self.refused.get(topic.name, code)
                    )
                    for p in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return OffsetCommitResponse(throttle_time=ZERO, topics=topics)

    def _OffsetFetch(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        asked = request.groups[0].topics
        if asked is None:
            places = set(self.committed)
        else:
            places = {(topic.name, index) for topic in asked for index in topic.partition_indexes}
        topics: Any = tuple(
            OffsetFetchResponseTopics(
                name=topic,
                partitions=(
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=self.committed.get((topic, index), -1),  # type: ignore[arg-type]
                        committed_leader_epoch=-1, metadata="x", error_code=self.refused.get(topic, NONE),  # type: ignore[arg-type]
                    ),
                ),
            )
            for topic, index in sorted(places)
        )  # fmt: skip
        group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=code)  # type: ignore[arg-type]
        return OffsetFetchResponse(throttle_time=ZERO, groups=(group,))


class FakeWire:
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.sent: list[Any] = []
        self.closed = self.dead = False

    def send(self, request: Any) -> None:
        self.broker.check()
        assert not self.closed
        assert not self.sent, "the answer to the first would be taken for that of the second"
        self.sent.append(request)

    def receive(self, answer: Any, timeout_ms: int) -> Any:
        self.broker.check()
        self.broker.looks += 1
        assert not self.closed
        one = self.sent[0]
        if self.dead or name_of(one) in self.broker.holds or self.broker.swallowed(one):
            return None
        return self.broker.handle(self.sent.pop(0))

    def call(self, request: Any, answer: Any, timeout_ms: int) -> Any:
        assert not self.closed
        if self.dead or self.broker.swallowed(request):
            raise ConnectionLostError("no answer in time")
        return self.broker.handle(request)

    def close(self) -> None:
        self.closed = True
