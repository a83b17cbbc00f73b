"""A coordinator in memory and a member's machine on a step clock: no sockets, threads or sleeps."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
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

from milestones.common.assignment.model import Assignment, AssignmentOrigin, Subscription
from milestones.common.clock import SystemClock
from milestones.common.errors import MilestonesError
from milestones.common.kafka.membership import GroupMember, MemberSettings
from milestones.common.kafka.membership.coordinator import Coordinator
from milestones.common.kafka.membership.events import (
    Assigning,
    CommitOffsets,
    Committed,
    FetchOffsets,
    Join,
    JoinNeeded,
    MemberEvent,
    Membership,
    Offsets,
)
from milestones.common.kafka.membership.machine import MemberMachine
from milestones.common.kafka.wire import ConnectionLostError
from milestones.common.kafka.wire_settings import Address
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition

NONE = ErrorCode.none
BOOT = (Address("boot1", 9092), Address("boot2", 9092))
TASK = TaskId(0, 0)
ASSIGNED = Assignment(active=frozenset({TASK}), partitions={TASK: (TopicPartition("in", 0),)})
_ZERO = i32Timedelta.parse(timedelta())


class FakeBroker:
    """Answers every request well, unless told otherwise by `codes`, `down`, `held` or `holds`. While it holds a
    JoinGroup back its group rebalances. What `swallows` names gets lost: no answer comes, no connection breaks."""

    def __init__(self) -> None:
        self.codes: dict[str, list[ErrorCode]] = defaultdict(list)
        self.down = False
        self.held = False
        self.refused: dict[str, ErrorCode] = {}
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

    def connect(self, address: Address) -> FakeWire:
        self.hosts.append(address)
        self.check()
        self.wires.append(FakeWire(self))
        return self.wires[-1]

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
        return [type(request).__name__.removesuffix("Request") for request in self.requests]

    def of(self, name: str) -> list[Any]:
        return [request for request in self.requests if type(request).__name__ == f"{name}Request"]

    def handle(self, request: Any) -> Any:
        self.check()
        self.requests.append(request)
        name = type(request).__name__.removesuffix("Request")
        code = self.codes[name].pop(0) if self.codes[name] else NONE
        return getattr(self, f"_{name}")(request, code)

    def _FindCoordinator(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        host, port = self.coordinator
        found = FoundCoordinator(key="g", node_id=1, host=host, port=port, error_code=code, error_message=None)  # type: ignore[arg-type]
        return FindCoordinatorResponse(throttle_time=_ZERO, coordinators=(found,))

    def _JoinGroup(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        if code is NONE and not self.skip_assignment:
            self.generation += 1
        (chosen,) = [p for p in request.protocols if p.name == (self.selected or request.protocols[0].name)]
        self.metadata = chosen.metadata
        members = {self.member_id: self.metadata, **self.others}
        leader = self.leader or self.member_id
        return JoinGroupResponse(
            throttle_time=_ZERO,
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
            throttle_time=_ZERO,
            error_code=code,
            protocol_type="consumer",
            protocol_name="milestones-v1",
            assignment=self.stored,
        )

    def _Heartbeat(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        if code is NONE and self.rebalances():
            code = ErrorCode.rebalance_in_progress
        return HeartbeatResponse(throttle_time=_ZERO, error_code=code)

    def _LeaveGroup(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        return LeaveGroupResponse(throttle_time=_ZERO, error_code=code, members=())

    def _OffsetCommit(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        topics = tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                    for p in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return OffsetCommitResponse(throttle_time=_ZERO, topics=topics)

    def _OffsetFetch(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        topics: Any = tuple(
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="",  # type: ignore[arg-type]
                        error_code=self.refused[topic.name],
                    )
                    for index in topic.partition_indexes
                ),
            )
            for topic in request.groups[0].topics
            if topic.name in self.refused
        )  # fmt: skip
        group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=code)  # type: ignore[arg-type]
        return OffsetFetchResponse(throttle_time=_ZERO, groups=(group,))


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
        if self.dead or self.broker.held or name_of(one) in self.broker.holds or self.broker.swallowed(one):
            return None
        return self.broker.handle(self.sent.pop(0))

    def call(self, request: Any, answer: Any, timeout_ms: int) -> Any:
        assert not self.closed
        if self.dead or self.broker.swallowed(request):
            raise ConnectionLostError("no answer in time")
        return self.broker.handle(request)

    def close(self) -> None:
        self.closed = True


class FixedLeader:
    def __init__(self) -> None:
        self.seen: list[Mapping[str, Subscription]] = []
        self.error: MilestonesError | None = None
        self.steps = self.done = 0

    def assign(self, members: Mapping[str, Subscription], origin: AssignmentOrigin) -> Assigning:
        self.seen.append(members)
        if self.error is not None:
            raise self.error
        for _ in range(self.steps):
            self.done += 1
            yield
        return dict.fromkeys(members, ASSIGNED)


def name_of(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")


def subscription(**changes: Any) -> Subscription:
    what: dict[str, Any] = {
        "process_id": "p",
        "stage": "baseline",
        "capacity": 1,
        "topics": ("in",),
        "fingerprint": "f",
    }
    return Subscription(**{**what, **changes})


class Bench:
    """One member's machine, its broker, its owner; `now` in ms. `still_ms`: for how long the computer stood still."""

    TASK = TASK
    ASSIGNED = ASSIGNED
    subscription = staticmethod(subscription)

    def __init__(self, **settings: Any) -> None:
        self.now = 0
        self.broker, self.leader = FakeBroker(), FixedLeader()
        client = {"bootstrap.servers": "boot1,boot2"}
        self.settings = MemberSettings(group_id="g", client=client, **settings)
        self.events: list[MemberEvent] = []
        self.membership = Membership()
        self.coordinator = Coordinator("g", BOOT, self.broker.connect, 1000)
        self.still_ms = 0
        self.machine = MemberMachine(
            self.settings, self.leader, self.coordinator, self._post, self._publish, 0, lambda: self.still_ms
        )
        self.joins = 0

    def _post(self, event: MemberEvent, joins: int) -> None:
        self.events.append(event)

    def _publish(self, membership: Membership) -> None:
        self.membership = membership

    def take(self) -> list[MemberEvent]:
        events, self.events = self.events, []
        return events

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.take()]

    def run(self, ms: int = 0, step: int = 100, poll: bool = True) -> None:
        """Let `ms` pass in steps, the owner polling if `poll`; at least a few steps at the present."""
        end = self.now + ms
        while True:
            for _ in range(4):
                if poll:
                    self.machine.polled_ms = self.now
                self.machine.run_once(self.now)
            if self.now >= end:
                return
            self.now = min(self.now + step, end)

    def join(self, **changes: Any) -> None:
        self.joins += 1
        self.machine.receive(Join(self.joins, self.membership.losses, subscription(**changes)))

    def asked(self) -> Bench:
        """Its owner has heard that it is to join."""
        self.run()
        assert self.kinds() == ["JoinNeeded"]
        return self

    def joined(self, ms: int = 0, **changes: Any) -> list[str]:
        """Join; what the owner has heard after `ms`, by kind."""
        self.join(**changes)
        self.run(ms)
        return self.kinds()

    def stable(self) -> Bench:
        """Joined, with one task."""
        self.run()
        assert isinstance(self.take()[0], JoinNeeded)
        self.join()
        self.run()
        self.take()
        assert self.membership.generation == 1
        return self

    def fetch(self) -> Mailbox[Committed]:
        reply: Mailbox[Committed] = Mailbox(1)
        self.machine.receive(FetchOffsets(1, frozenset({TopicPartition("in", 0)}), reply))
        return reply

    def commit(self, offsets: Offsets, timeout_ms: int = 1000) -> Mailbox[MilestonesError | None]:
        reply: Mailbox[MilestonesError | None] = Mailbox(1)
        self.machine.receive(CommitOffsets(offsets, self.now + timeout_ms, reply))
        return reply


@pytest.fixture
def member_bench() -> type[Bench]:
    """`member_bench(**settings)`: a machine on a step clock with a coordinator in memory."""
    return Bench


class Alone:
    """A real `GroupMember` with its thread, whose network is a `FakeBroker`."""

    subscription = staticmethod(subscription)

    def __init__(self) -> None:
        self.broker, self.leader = FakeBroker(), FixedLeader()
        settings = MemberSettings(group_id="g", client={"bootstrap.servers": "boot1"}, heartbeat_interval_ms=20)
        self.member = GroupMember(settings, self.leader, SystemClock(), self.broker.connect)
        self.member.start()

    def next(self) -> MemberEvent:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if events := self.member.poll():
                [event] = events
                return event
            time.sleep(0.001)
        raise AssertionError("no event")

    def joined(self) -> Alone:
        assert isinstance(self.next(), JoinNeeded)
        self.member.join(subscription())
        self.next()
        return self


@pytest.fixture
def alone() -> Iterator[Alone]:
    """A started member whose coordinator is in memory; closed at the end."""
    alone = Alone()
    yield alone
    alone.broker.held = False
    alone.member.close(leave=False)
