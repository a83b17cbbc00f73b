"""A Kafka in memory for the polling thread's campaign: as bad as `Moods` say, and with an ear for waits."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.errors import MilestonesError
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import Assigned, CommitRetriableError, JoinNeeded, Lost, StaleGenerationError
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.steps import Steps
from milestones.common.testing import StepClock
from tests.milestones.chaos.moods import THE_GROUP, Moods, Waits
from tests.milestones.chaos.producers import ChaosProducer, LooseProducer
from tests.milestones.fake_kafka import FakeConsumer, FakeMember, FakeProducer
from tests.milestones.fakes import World, inputs
from tests.milestones.m3_fencing_tolerance.simulated import (
    UNANSWERED,
    SimulatedClients,
    SimulatedMember,
)
from tests.milestones.m3_fencing_tolerance.tolerant import unready


class AskedClock(StepClock):
    """While the polling thread sleeps, others work."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Waits | None = None

    def sleep_ms(self, ms: int) -> None:
        if self.waits is not None:
            self.waits.ask("sleep", ms)
        super().sleep_ms(ms)
        if self.waits is not None and self.waits.polling():
            self.waits.others()


class StableConsumer(FakeConsumer):
    """Reads committed records, up to the first one of a transaction that is open: the last stable offset."""

    def __init__(self, clients: ChaosClients) -> None:
        super().__init__(clients.logs)
        self._clients = clients

    def fetch(self, limit: int, timeout_ms: int) -> Any:
        self._clients.waits.ask("fetch", timeout_ms)
        return super().fetch(limit, timeout_ms)

    def _fetch(self, partition: TopicPartition, limit: int, fetched: Fetched) -> None:
        stable = self._clients.first_open_offset(partition)
        at = max(self.positions[partition], self.logs[partition].first)
        super()._fetch(partition, limit if stable is None else max(0, min(limit, stable - at)), fetched)


class ChaosMember(SimulatedMember):
    """A member whose questions about a recovery are answered at once: these are waited for in real time. A commit that
    it withholds ends with its time-out."""

    waits_of: Waits
    clock: StepClock
    _commit_until_ms = 0
    _called_ms: int | None = None

    def poll(self) -> list[Any]:
        self.waits_of.spent.clear()
        events = super().poll()
        if self._called_ms is None and any(isinstance(event, JoinNeeded) for event in events):
            self._called_ms = self.clock.monotonic_ms()
        return events

    def stood_still(self, ms: int) -> None:
        """The whole process did: that is no time in which the polling thread could have answered."""
        if self._called_ms is not None:
            self._called_ms += ms

    def join(self, subscription: Subscription) -> None:
        if self._called_ms is not None:
            self.waits_of.spend(THE_GROUP, self.clock.monotonic_ms() - self._called_ms)
            self._called_ms = None
        super().join(subscription)

    def begin_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        super().begin_commit(offsets, timeout_ms)
        self._commit_until_ms = self.clock.monotonic_ms() + 2 * timeout_ms  # as with `GroupMember`

    def commit_returned(self, wait_ms: int) -> bool:
        now_ms = self.clock.monotonic_ms()
        if self.withholds and now_ms >= self._commit_until_ms:
            self._commit = None
            self.waits_of.spent.pop("commit of offsets", None)
            raise CommitRetriableError("no answer in time")
        if self.withholds:
            self.clock.advance(min(wait_ms, self._commit_until_ms - now_ms))
            self.waits_of.spend("commit of offsets", self.clock.monotonic_ms() - now_ms)
            self.waits_of.others()
        return super().commit_returned(wait_ms)

    def fetch_offsets(self, number: int, partitions: frozenset[TopicPartition], reply_to: Any) -> None:
        if number or not self.holds:
            super().fetch_offsets(number, partitions, reply_to)
            return
        waiting, self.questions = self.questions, [(number, partitions, reply_to)]
        self.answer()
        self.questions += waiting


class ChaosClients(SimulatedClients):
    """The clients of one polling thread, on the logs and the group of the one before. `wrong`: what must not be."""

    def __init__(self, world: World, chance: random.Random, moods: Moods, waits: Waits, wrong: list[str]) -> None:
        self.chance, self.moods, self.waits, self.logs, self.clock = chance, moods, waits, world.logs, world.clock
        self._transactional = world.config.exactly_once
        self.wrong = wrong
        super().__init__(world, chance, 0.0)
        self.member = member = ChaosMember()
        member.waits_of, member.clock = waits, self.clock
        member.committed = self.coordinator.offsets
        member.pending = lambda: self.coordinator.pending
        self.consumer, self.restore_consumer = StableConsumer(self), StableConsumer(self)
        self.producer = self._new(ready=True)

    def succeed(self, before: ChaosClients) -> None:
        """The polling thread before has ended."""
        self.coordinator = before.coordinator
        self.member.committed = self.coordinator.offsets
        self.producer = self._new(ready=True)

    def new_restore_consumer(self) -> FakeConsumer:
        if self.restore_consumer.closed:
            self.restore_consumer = StableConsumer(self)
        return self.restore_consumer

    def first_open_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the first record that the open transaction has in this partition."""
        records = () if self.coordinator._open is None else self.coordinator._open[0]
        here = [offset for output, offset in records if (output.topic, output.partition) == partition]
        return min(here, default=None)

    def _new(self, *, ready: bool) -> Any:
        return ChaosProducer(self, ready=ready) if self._transactional else LooseProducer(self)

    def renew_producer(self, within_ms: int | None = None, *, isolation: BatchIsolation | None = None) -> Steps[None]:
        self.waits.ask("a new producer", within_ms or 0)
        self.renewed += 1
        old, ready = self.producer, not self._transactional or self.chance.random() >= self.moods.trouble / 2
        self.producer = self._new(ready=ready)
        self.producer.isolation = isolation
        try:
            if self._transactional:
                yield from self._readied(self.producer)
        finally:
            old.close()
        if not ready:
            raise unready(UNANSWERED)


    def _readied(self, producer: FakeProducer) -> Steps[None]:
        """Its call is under way for some steps: until then it is of no other use."""
        producer.begin_nothing()  # type: ignore[attr-defined]
        for _ in range(self.moods.renewal_steps):
            self.clock.advance(min(20, (yield)))
            self.waits.others()
        producer._under_way = None


class Group:
    """The coordinator as the member sees it: JoinNeeded, the join, then an assignment. `told`: what each join says."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.told: Callable[[Subscription], object] = lambda _: None
        self._generation = self._rejoins = 0
        self.joined = False

    @property
    def member(self) -> FakeMember:
        return self._world.member

    def welcome(self) -> None:
        """A new member comes."""
        self._rejoins, self.joined = 0, False
        self.member.on_join = self._on_join
        self.need()

    def _on_join(self, said: Subscription) -> None:
        self.told(said)
        self.member.gate = self.joined = True
        self.member.metadata_error = None

    def need(self) -> None:
        if not any(isinstance(event, JoinNeeded) for event in self.member.events):
            self.member.events.append(JoinNeeded("a test"))

    def listen(self) -> None:
        """Have the member join again, if it asks for that."""
        if len(self.member.rejoins) > self._rejoins:
            self._rejoins = len(self.member.rejoins)
            self.need()

    def assign(self, active: Collection[TaskId], standby: Collection[TaskId] = ()) -> None:
        if self.joined:
            self.joined = self.member.gate = False
            self._generation += 1
            given = Assignment(
                active=frozenset(active),
                partitions={id: inputs(self._world, id) for id in active},
                standby=frozenset(standby),
            )
            self.member.events.append(Assigned(self._generation, "member", given))

    def lose(self) -> None:
        """The coordinator has given the member up."""
        error: MilestonesError = StaleGenerationError("a test")
        self.joined, self.member.gate, self.member.metadata_error = False, False, error
        self.member.events.append(Lost("session timeout"))
        self.need()
