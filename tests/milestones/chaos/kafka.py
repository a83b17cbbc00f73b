"""A Kafka in memory for the polling thread's campaign: as bad as `Moods` say, and with an ear for waits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from milestones.common.assignment.model import Subscription
from milestones.common.errors import MilestonesError
from milestones.common.kafka.apart import Apart
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import Assigned, CommitRetriableError, JoinNeeded, Lost, StaleGenerationError
from milestones.common.kafka.producer import Refused, RefusedInTransactionError
from milestones.common.records import Emitted, OffsetAndMetadata, Output, TaskId, TopicPartition
from milestones.common.steps import AT_ONCE_MS, Steps
from milestones.common.testing import StepClock
from tests.milestones.fake_kafka import FakeConsumer, FakeMember, FakeProducer
from tests.milestones.fakes import ILLEGAL_GENERATION, World, assignment
from tests.milestones.m3_fencing_tolerance.simulated import (
    UNANSWERED,
    SimulatedClients,
    SimulatedMember,
    SimulatedProducer,
)
from tests.milestones.m3_fencing_tolerance.tolerant import unready
from tests.milestones.stepped_workers import Ledger

REFUSED = KafkaError(KafkaError.INVALID_RECORD)
MAY_BE_TAKEN = KafkaError(KafkaError.INVALID_RECORD, "a test", False, True)
"""The same, of a record that may be taken when it is sent again."""
UNNAMED = b"k2"
"""From this key on the broker doesn't say which record of a batch it refuses."""
REFUSES = "the broker refuses a record"
OF_ONE_TASK = (REFUSES, "Kafka refused a batch of records")
"""Texts of transactions' failures that are one task's."""


@dataclass
class Moods:
    """What Kafka is up to. `trouble`: how probably a call of a producer goes wrong; `stale`: the next offsets are
    refused for their generation; `refused`: keys whose outputs the broker refuses, with `error`; `renewal_steps`: how
    often a new producer is looked at before it is ready."""

    trouble: float = 0.0
    stale: bool = False
    refused: set[bytes] = field(default_factory=set)
    error: KafkaError = REFUSED
    renewal_steps: int = 0

    def calm(self) -> None:
        self.trouble, self.stale, self.renewal_steps = 0.0, False, 0
        self.refused.clear()


THE_GROUP = "the group"


@dataclass
class Waits:
    """The waits of the polling thread. `others`: what other threads do meanwhile; `polling`: whether the polling thread
    is what runs now; `longest`: of each kind of wait, what was asked for, ms; `spent`: of each call of Kafka, the time
    that it was waited for since the last look at the group; `longest_spent`: the longest of these; `repeated`: calls
    that are repeated for longer before tasks are given away."""

    most_ms: int
    others: Callable[[], None] = lambda: None
    polling: Callable[[], bool] = lambda: False
    longest: Counter[str] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    longest_spent: Counter[str] = field(default_factory=Counter)
    repeated: Mapping[str, int] = field(default_factory=dict)

    def ask(self, what: str, ms: int) -> None:
        """The thread that runs asks for a wait of so long."""
        if self.polling():
            self.longest[what] = max(ms, self.longest[what])

    def spend(self, what: str, ms: int) -> None:
        """So long it has waited for this call, or the group for it."""
        self.spent[what] += ms
        self.longest_spent[what] = max(self.spent[what], self.longest_spent[what])

    def too_long(self) -> dict[str, int]:
        """The waits that were longer than they may be. A call is waited for in steps: the last one may be too long."""
        asked = {what: ms for what, ms in self.longest.items() if ms > self.most_ms}
        most_ms = {what: self.repeated.get(what, self.most_ms) + AT_ONCE_MS for what in self.longest_spent}
        return asked | {what: ms for what, ms in self.longest_spent.items() if ms > most_ms[what]}


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


class AskedCalls(FakeProducer):
    """A producer whose calls that have no answer end with their time-out."""

    waits_of: Waits
    _within_ms = _began_ms = 0

    def begin_flush(self, timeout_ms: int) -> None:
        self._within_ms = timeout_ms
        super().begin_flush(timeout_ms)

    def begin_send_offsets(self, *arguments: Any) -> None:
        self._within_ms = arguments[-1]
        super().begin_send_offsets(*arguments)

    def begin_commit(self, timeout_ms: int) -> None:
        self._within_ms = timeout_ms
        super().begin_commit(timeout_ms)

    def _begin(self, name: str, call: Callable[[], None]) -> None:
        self._began_ms = self.clock.monotonic_ms()
        self.waits_of.ask(name, self._within_ms)
        super()._begin(name, call)

    def returned(self, wait_ms: int) -> bool:
        name, now_ms = self._under_way[0] if self._under_way else "nothing", self.clock.monotonic_ms()
        left_ms = self._within_ms - (now_ms - self._began_ms)
        if name in self.withheld and left_ms <= 0:
            self._under_way = None
            self._unanswered(name)
            raise UNANSWERED
        self.waits_of.ask("an answer", wait_ms)
        returned = super().returned(min(wait_ms, max(0, left_ms)))
        self.waits_of.spend(name, self.clock.monotonic_ms() - now_ms)
        if returned:
            self.waits_of.spent.pop(name, None)
        else:
            self.waits_of.others()
        return returned

    def _unanswered(self, name: str) -> None:
        """The call has come to its time-out."""

    def begin_abort(self, timeout_ms: int) -> None:
        self._within_ms = timeout_ms
        super().begin_abort(timeout_ms)

    def begin_nothing(self) -> None:
        """Begin a call of which another one looks after the end."""
        self._begin("init_transactions", lambda: None)

    def abort(self, timeout_ms: int) -> None:
        self.waits_of.ask("abort", timeout_ms)
        self.waits_of.spent.clear()
        super().abort(timeout_ms)

    def close(self, timeout_ms: int = 0) -> None:
        self.waits_of.spent.clear()
        super().close(timeout_ms)


class ChaosProducer(AskedCalls, SimulatedProducer):
    """One producer of the transactional id; the broker refuses the outputs for some keys."""

    def __init__(self, clients: ChaosClients, *, ready: bool = True) -> None:
        super().__init__(clients.coordinator, clients.chance, clients.clock, trouble=0, ready=ready)
        self.waits_of, self._moods = clients.waits, clients.moods

    def _fails(self) -> bool:
        return self._chance.random() < self._moods.trouble

    def begin(self) -> None:
        if not self.in_transaction:
            self.sent.clear()
        super().begin()

    def send(
        self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str] = (), **more: Any
    ) -> Sequence[Emitted]:
        super().send(task, outputs, changelogs, **more)
        self.contributors.add(task)
        self.sent += [(task, Output._make(output)) for output in outputs]
        return ()

    def _bad(self) -> list[tuple[TaskId, Output]]:
        return [(task, output) for task, output in self.sent if is_refused(output, self._moods)]

    def flush(self, timeout_ms: int) -> None:
        super().flush(timeout_ms)
        if self.apart is not None:
            told = refused_with(self._bad(), self.sent, self.apart)
            self.refused = [Refused(task, self._moods.error, output, sent=True) for task, output in told]

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        self._live()
        if self._bad():
            raise RefusedInTransactionError(REFUSES, single=True)
        if self._moods.stale:
            self._moods.stale = False
            raise ILLEGAL_GENERATION
        super().send_offsets(offsets, group_metadata, timeout_ms)

    def _unanswered(self, name: str) -> None:
        """The end of the transaction is made, or arrives later."""
        if name == "commit":
            self._coordinator.late.append((self._epoch, True))
            self.disconnected = True
            if self._chance.random() < 0.5:
                self._coordinator.deliver()


def is_refused(output: Output, moods: Moods) -> bool:
    return output.topic == "out" and output.key in moods.refused


Sent = tuple[TaskId, Output]


def refused_with(bad: list[Sent], sent: Sequence[Sent], apart: Apart) -> list[Sent]:
    """What is reported of these: themselves only, or, where Kafka doesn't name them, all of their batch."""
    if all(apart.is_alone(output) or (output.key or b"") < UNNAMED for _, output in bad):
        return bad
    return [(task, output) for task, output in sent if output.topic == "out" and not apart.is_alone(output)]


class LooseProducer(AskedCalls, Ledger):
    """A producer without transactions: what it is given is in the logs, but for what is refused."""

    def __init__(self, clients: ChaosClients) -> None:
        super().__init__(clients.logs, clients.member, transactional=False)
        self.clock, self.waits_of, self._moods = clients.clock, clients.waits, clients.moods

    def send(self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str] = (), **more: Any) -> Any:
        all_outputs = [Output._make(output) for output in outputs]
        bad = [output for output in all_outputs if is_refused(output, self._moods)]
        if self.apart is not None:
            batch = [(task, output) for output in all_outputs]
            bad = [output for _, output in refused_with([one for one in batch if one[1] in bad], batch, self.apart)]
        self.refused += [Refused(task, self._moods.error, output, sent=True) for output in bad]
        return super().send(task, [output for output in all_outputs if output not in bad], changelogs, **more)


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
    """The clients of one polling thread, on the logs and the group of the one before."""

    def __init__(self, world: World, chance: random.Random, moods: Moods, waits: Waits) -> None:
        self.chance, self.moods, self.waits, self.logs, self.clock = chance, moods, waits, world.logs, world.clock
        self._transactional = world.config.exactly_once
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

    def renew_producer(self, within_ms: int | None = None, *, apart: Apart | None = None) -> Steps[None]:
        self.waits.ask("a new producer", within_ms or 0)
        self.renewed += 1
        old, ready = self.producer, not self._transactional or self.chance.random() >= self.moods.trouble / 2
        self.producer = self._new(ready=ready)
        self.producer.apart = apart
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

    def assign(self, active: Collection[int], standby: Collection[int] = ()) -> None:
        if self.joined:
            self.joined = self.member.gate = False
            self._generation += 1
            given = assignment(self._world, *active, standby=frozenset(TaskId(0, p) for p in standby))
            self.member.events.append(Assigned(self._generation, "member", given))

    def lose(self) -> None:
        """The coordinator has given the member up."""
        error: MilestonesError = StaleGenerationError("a test")
        self.joined, self.member.gate, self.member.metadata_error = False, False, error
        self.member.events.append(Lost("session timeout"))
        self.need()
