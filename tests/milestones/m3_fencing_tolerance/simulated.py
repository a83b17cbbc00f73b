"""A transaction coordinator in memory, and a client of it over a network that loses, delays and repeats ends.

What Kafka's coordinator does, as far as it matters here: an epoch per transactional id that `init` raises, which aborts
what is open; the end of a transaction counts for whatever is open under the same epoch, however late it comes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from milestones.common.errors import MilestonesError
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.records import Emitted, OffsetAndMetadata, Output, TaskId, TopicPartition, output_of
from milestones.common.steps import Steps
from milestones.common.testing import StepClock
from tests.milestones.fake_kafka import FENCED, FakeClients, FakeMember, FakeProducer, Logs, kafka_error
from tests.milestones.fakes import World
from tests.milestones.m3_fencing_tolerance.tolerant import unready

UNANSWERED = kafka_error(KafkaError._TIMED_OUT, retriable=True)
ABORTABLE = kafka_error(KafkaError._MSG_TIMED_OUT, abort=True)
DEAD = kafka_error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)


class Coordinator:
    """`committed`: outputs that readers see; `offsets`: what the group has committed; `late`: ends on their way. Each
    record takes a place in its log when it is sent, and is seen there once it is committed."""

    def __init__(self, logs: Logs, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self._logs, self.offsets = logs, offsets
        self.committed: list[Output] = []
        self.epoch = 0
        self.late: list[tuple[int, bool]] = []
        self.watch: Callable[[Sequence[Output], Mapping[TopicPartition, OffsetAndMetadata]], object] = lambda *_: None
        """Sees what is about to be committed: records, and offsets."""
        self._open: tuple[list[tuple[Output, int]], dict[TopicPartition, OffsetAndMetadata]] | None = None
        self._last: bool | None = None

    def init(self) -> int:
        self.epoch += 1
        self._open = self._last = None
        return self.epoch

    @property
    def pending(self) -> bool:
        """Whether a transaction pends on offsets."""
        return self._open is not None and bool(self._open[1])

    def add(self, epoch: int, outputs: Iterable[Output]) -> dict[TopicPartition, int]:
        """Put the outputs into the transaction; the offsets after them."""
        records, ends = self._transaction(epoch)[0], {}
        for output in outputs:
            at = TopicPartition(output.topic, output.partition)
            records.append((output, self._logs[at].end))
            ends[at] = self._logs[at].control().end
        return ends

    def add_offsets(self, epoch: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._transaction(epoch)[1].update(offsets)

    def _transaction(self, epoch: int) -> tuple[list[tuple[Output, int]], dict[TopicPartition, OffsetAndMetadata]]:
        if epoch != self.epoch:
            raise FENCED
        if self._open is None:
            self._open = [], {}
        return self._open

    def end(self, epoch: int, *, commit: bool) -> None:
        if epoch != self.epoch:
            raise FENCED
        if self._open is None:
            if self._last is not commit:
                raise kafka_error(KafkaError.INVALID_TXN_STATE, fatal=True)
            return
        if commit:
            self._commit(*self._open)
        self._open, self._last = None, commit

    def _commit(
        self, records: Sequence[tuple[Output, int]], offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self.watch([output for output, _ in records], offsets)
        self.offsets.update(offsets)
        for output, offset in records:
            log = self._logs[TopicPartition(output.topic, output.partition)]
            message = log.message(offset, output.key, output.value, output.timestamp, output.headers)
            log.entries[offset - log.first] = message
            self.committed.append(output)

    def time_out(self) -> None:
        """The open transaction is too old."""
        if self._open is not None:
            self.init()

    def deliver(self) -> None:
        """What was late arrives."""
        for epoch, commit in self.late:
            try:
                self.end(epoch, commit=commit)
            except Exception:
                continue
        self.late.clear()


class SimulatedProducer(FakeProducer):
    """One producer of the id. It fails as `chance` wants; what fails with an error that is not its end stays so."""

    def __init__(
        self,
        coordinator: Coordinator,
        chance: random.Random,
        clock: StepClock,
        *,
        trouble: float,
        ready: bool = True,
    ) -> None:
        super().__init__(clock=clock)
        self._coordinator, self._chance, self._trouble = coordinator, chance, trouble
        self._epoch = coordinator.init() if ready else -1
        self._dead: Exception | None = None if ready else kafka_error(KafkaError._STATE)

    def begin(self) -> None:
        if not self.in_transaction:
            self._live()
        super().begin()

    def send(
        self, task: TaskId, outputs: Iterable[Emitted], changelogs: Collection[str] = (), **_: Any
    ) -> Sequence[Emitted]:
        self.begin()
        self._reach(lambda: self._add(list(map(output_of, outputs)), changelogs))
        return ()

    def _add(self, outputs: list[Output], changelogs: Collection[str]) -> None:
        ends = self._coordinator.add(self._epoch, outputs)
        self.acknowledged.update({at: end for at, end in ends.items() if at.topic in changelogs})

    def flush(self, timeout_ms: int) -> None:
        self._live()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        self._live()
        if self._fails():
            raise self._chance.choice([UNANSWERED, ABORTABLE, self._die(DEAD)])
        self._reach(lambda: self._coordinator.add_offsets(self._epoch, offsets))

    def commit(self, timeout_ms: int) -> None:
        self._end(commit=True)

    def abort(self, timeout_ms: int) -> None:
        if self.in_transaction:
            self._end(commit=False)
        for noted in (self.acknowledged, self.refused, self.letters, self.undecided):
            noted.clear()

    def _end(self, *, commit: bool) -> None:
        """An end that has no answer was made, never arrived, or arrives later; the client sends it again, or not."""
        self._live()
        if self._fails():
            fate = self._chance.choice(["late and again", "made", "made, then dead", "never", "late", "abortable"])
            if fate == "abortable":
                raise ABORTABLE
            if fate.startswith("made"):
                self._reach(lambda: self._coordinator.end(self._epoch, commit=commit))
            if fate.startswith("late"):
                self._coordinator.late.append((self._epoch, commit))
            self.disconnected = True
            if fate == "made, then dead":
                raise self._die(DEAD)
            if fate != "late and again":
                raise UNANSWERED
        self._reach(lambda: self._coordinator.end(self._epoch, commit=commit))
        self.in_transaction = False

    def close(self, timeout_ms: int = 0) -> None:
        if self.in_transaction and self._epoch >= 0 and not self.closed:
            self._coordinator.late.append((self._epoch, False))
        super().close(timeout_ms)

    def _fails(self) -> bool:
        return self._chance.random() < self._trouble

    def _reach(self, call: Any) -> None:
        try:
            call()
        except Exception as error:
            raise self._die(error) from None

    def _die(self, error: Exception) -> Exception:
        self._dead = error
        return error

    def _live(self) -> None:
        if self._dead is not None:
            raise self._dead


class SimulatedMember(FakeMember):
    """Tells offsets once no transaction pends on them."""

    pending: Callable[[], bool]

    def answer(self, error: MilestonesError | None = None) -> None:
        waiting = [question for question in self.questions if question[1] and self.pending()]
        self.questions = [question for question in self.questions if question not in waiting]
        super().answer(error)
        self.questions += waiting


class SimulatedClients(FakeClients):
    """Makes simulated producers; now and then one that isn't ready in time."""

    def __init__(self, world: World, chance: random.Random, trouble: float) -> None:
        super().__init__(world.logs)
        self._chance, self._trouble, self._clock = chance, trouble, world.clock
        self.member = member = SimulatedMember()
        self.coordinator = Coordinator(world.logs, member.committed)
        member.pending = lambda: self.coordinator.pending
        self.producer = self._new(ready=True)

    def _new(self, *, ready: bool) -> SimulatedProducer:
        return SimulatedProducer(self.coordinator, self._chance, self._clock, trouble=self._trouble, ready=ready)

    def renew_producer(self, within_ms: int | None = None, *, isolation: BatchIsolation | None = None) -> Steps[None]:
        yield from ()
        self.renewed += 1
        old, ready = self.producer, self._chance.random() >= self._trouble / 2
        self.producer = self._new(ready=ready)
        old.close()
        if not ready:
            raise unready(UNANSWERED)
