"""An application on a real broker whose attempts a test makes by hand, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from milestones import StreamsBuilder, StreamsConfig, serdes
from milestones.common.clock import SystemClock
from milestones.common.kafka.groups import DescribedMember, GroupReader
from milestones.common.kafka.membership import LentMembership
from milestones.common.records import TaskId, TopicPartition
from milestones.instance.application import Application
from milestones.pipeline.driving.driver_membership import DriverMembership
from milestones.pipeline.hosting.attempt import attempt
from milestones.pipeline.hosting.payload import pack
from milestones.pipeline.hosting.ranges import RangeOutcome, TaskRange
from milestones.pipeline.hosting.surroundings import HostedClients
from milestones.testing import KafkaProbe
from tests.topics import named

TASK = TaskId(0, 0)
SLOW = {"commit_interval_ms": 50_000, "transaction_timeout_ms": 60_000}
"""Nothing is committed before the end of a range."""
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"


meanwhile: list[Callable[[], object]] = []
"""What happens while a record is processed; `clients` run it in this process."""


def shout(value: str) -> str:
    while meanwhile:
        meanwhile.pop()()
    if value == "poison":
        raise ValueError("not this")
    return value.upper()


class Ahead(SystemClock):
    """A clock that a test sets forward."""

    by_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.by_ms


class Bench:
    """An application of one task, `in` -> count -> `out`, and a membership in its group."""

    def __init__(
        self, servers: str, folder: Path, guarantee: str, store: dict[str, Any] | None = None,
        program: Callable[[str], StreamsBuilder] | None = None, **settings: Any,
    ) -> None:
        """`program`: another one than the count, by application id."""
        self.id = named("attempts")
        self.input, self.output = TopicPartition(f"{self.id}-in", 0), f"{self.id}-out"
        self.config = StreamsConfig(
            application_id=self.id, bootstrap_servers=servers, processing_guarantee=guarantee, state_dir=str(folder),
            session_timeout_ms=6_000, heartbeat_interval_ms=500,
            **{"transaction_timeout_ms": 5_000, "commit_interval_ms": 100, **settings}, variables={},
        )  # fmt: skip
        self.servers, self.probe = servers, KafkaProbe(servers)
        self.probe.create({self.input.topic: 1, self.output: 1})
        self.topology = (self.counting(**(store or {})) if program is None else program(self.id)).build()
        self.application = Application.of(self.topology, self.config)
        self.clock = Ahead()
        self.membership = DriverMembership(self.config, self.application, self.id, 1, SystemClock())
        self.membership.start()
        self.lent = self.next_generation()

    def counting(self, **store: Any) -> StreamsBuilder:
        builder = StreamsBuilder()
        records = builder.stream(self.input.topic, key=serdes.STRING, value=serdes.STRING).map_values(shout)
        records.group_by_key().count("counts", **store).to_stream().to(self.output, value=serdes.LONG)
        return builder

    def next_generation(self) -> LentMembership:
        """Join; what to commit under from now on."""
        before = self.membership.lent
        if before is not None:
            self.membership.ask_for_generation("a test")
        while self.membership.lent in (None, before):
            self.membership.run_once()
            if self.membership.wanted is not None:
                self.membership.join()
                before = None
            threading.Event().wait(0.01)
        assert self.membership.lent is not None
        return self.membership.lent

    def send(self, *values: str) -> int:
        """Records of one key; where the input ends then."""
        self.probe.write(self.input.topic, *values, key="k")
        return self.probe.ends([self.input])[self.input]

    def range(self, end: int, **more: Any) -> TaskRange:
        return TaskRange(TASK, {}, {self.input: end}, **{"lent": self.lent, **more})

    def attempt(self, work: TaskRange, *, first: bool = True) -> RangeOutcome:
        return attempt(pack(self.topology, self.config, near=True), work, first=first)

    def clients(self, work: TaskRange) -> HostedClients:
        return HostedClients(self.config, self.application, work, self.clock)

    def overtake(self) -> None:
        """The next generation, and an attempt's next heartbeat is due."""
        self.lent = self.next_generation()
        self.clock.by_ms += self.config.heartbeat_interval_ms

    def members(self) -> Sequence[DescribedMember]:
        group = GroupReader({"bootstrap.servers": self.servers}, self.id, timeout_ms=10_000)
        try:
            return group.describe().members
        finally:
            group.close()

    def committed(self) -> int | None:
        return committed_of(self.servers, self.id, self.input)

    def counts(self) -> list[int]:
        """The committed outputs."""
        return [int.from_bytes(record.value or b"") for record in self.probe.read(self.output, stable=True)]


def committed_of(servers: str, group: str, at: TopicPartition) -> int | None:
    """Once no transaction pends on it: a commit returns before Kafka has written its markers."""
    with closing(GroupReader({"bootstrap.servers": servers}, group, timeout_ms=60_000)) as reader:
        found = reader.stable([at]).get(at)
    return None if found is None else found.offset


Make = Callable[..., Bench]


@contextmanager
def benches(servers: str, folder: Path) -> Iterator[Make]:
    """Makes benches; their memberships are given back at the end."""
    made: list[Bench] = []

    def make(guarantee: str = EXACTLY_ONCE, **settings: Any) -> Bench:
        made.append(Bench(servers, folder, guarantee, **settings))
        return made[-1]

    yield make
    for one in made:
        one.membership.close(leave=True)
