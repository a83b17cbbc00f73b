"""A member's machine on a step clock, and a member with its thread, before a coordinator in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

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
from milestones.common.kafka.wire_settings import Address
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from tests.common.kafka.fake_broker import FakeBroker

BOOT = (Address("boot1", 9092), Address("boot2", 9092))
TASK = TaskId(0, 0)
ASSIGNED = Assignment(active=frozenset({TASK}), partitions={TASK: (TopicPartition("in", 0),)})
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(7, "x")}


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


def subscription(**changes: Any) -> Subscription:
    what = {"process_id": "p", "stage": "baseline", "capacity": 1, "topics": ("in",), "fingerprint": "f"}
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
        self.asked().joined()
        assert self.membership.generation == 1
        return self

    def join_held(self, ms: int = 0, request: str = "JoinGroup") -> Bench:
        """Join; the answer to this request is held back, so far for `ms`."""
        self.broker.holds = {request}
        self.join()
        self.run(ms)
        return self

    def released(self, ms: int = 0) -> list[str]:
        """What was held back is answered; what the owner has heard after `ms`, by kind."""
        self.broker.holds = set()
        self.run(ms)
        return self.kinds()

    def beat(self, code: ErrorCode) -> None:
        """The coordinator answers the next heartbeat so."""
        self.broker.codes["Heartbeat"] = [code]
        self.run(3_000)

    def fetch(self) -> Mailbox[Committed]:
        reply: Mailbox[Committed] = Mailbox(1)
        self.machine.receive(FetchOffsets(1, frozenset(OFFSETS), reply))
        return reply

    def commit(self, timeout_ms: int = 1000, offsets: Offsets = OFFSETS) -> Mailbox[MilestonesError | None]:
        reply: Mailbox[MilestonesError | None] = Mailbox(1)
        self.machine.receive(CommitOffsets(offsets, self.now + timeout_ms, reply))
        return reply

    def answer(self, reply: Mailbox[Any], ms: int = 0) -> Any:
        """The answer to a commit or a question after `ms`: there must be one."""
        self.run(ms)
        assert len(reply) == 1
        return reply.get(0)


@pytest.fixture
def member_bench() -> type[Bench]:
    """`member_bench(**settings)`: a machine on a step clock with a coordinator in memory."""
    return Bench


@pytest.fixture
def bench() -> Bench:
    """A machine that has joined, with one task."""
    return Bench().stable()


class Alone:
    """A real `GroupMember` with its thread, whose network is a `FakeBroker`."""

    def __init__(self) -> None:
        self.broker, self.leader = FakeBroker(), FixedLeader()
        settings = MemberSettings(group_id="g", client={"bootstrap.servers": "boot1"}, heartbeat_interval_ms=20)
        self.member = GroupMember(settings, self.leader, SystemClock(), self.broker.connect)
        self.member.start()

    def next(self) -> MemberEvent:
        deadline = time.monotonic() + 10
        while not (events := self.member.poll()):
            assert time.monotonic() < deadline, "no event"
            time.sleep(0.001)
        [event] = events
        return event

    def join(self) -> None:
        self.member.join(subscription())

    def asked(self) -> Alone:
        assert isinstance(self.next(), JoinNeeded)
        return self

    def joined(self) -> Alone:
        self.asked().join()
        self.next()
        return self


@pytest.fixture
def alone() -> Iterator[Alone]:
    """A started member whose coordinator is in memory; closed at the end."""
    alone = Alone()
    yield alone
    alone.broker.holds = set()
    alone.member.close(leave=False)
