"""Producers of a campaign's Kafka, with transactions and without, that fail as its `Moods` say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.refusals import Refused, RefusedInTransactionError
from milestones.common.records import Emitted, OffsetAndMetadata, Output, TaskId, TopicPartition, output_of
from tests.milestones.batches import Sent, with_their_batch
from tests.milestones.chaos.moods import FORBIDDEN, IS_TOO_LARGE, REFUSES, UNDELIVERED, Moods, Waits
from tests.milestones.fake_kafka import FakeProducer
from tests.milestones.fakes import ILLEGAL_GENERATION
from tests.milestones.m3_fencing_tolerance.simulated import UNANSWERED, SimulatedProducer
from tests.milestones.stepped_workers import Ledger

if TYPE_CHECKING:
    from tests.milestones.chaos.kafka import ChaosClients


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
        taken, left = within_room(self, outputs, self._moods, more)
        taken = without_too_large(self, task, taken, self._moods, **more)
        super().send(task, taken, changelogs, **more)
        self.contributors.add(task)
        self.sent += [(task, output_of(output)) for output in taken]
        return left

    def _bad(self) -> list[tuple[TaskId, Output]]:
        return [(task, output) for task, output in self.sent if is_refused(output, self._moods)]

    def _forbidden(self) -> list[tuple[TaskId, Output]]:
        return [(task, output) for task, output in self.sent if to_out(output, self._moods.forbidden)]

    def flush(self, timeout_ms: int) -> None:
        super().flush(timeout_ms)
        if self.isolation is not None:
            told = refused_with(self._bad(), self.sent, self.isolation)
            refused = [Refused(task, self._moods.error, output, sent=True) for task, output in told]
            refused += [Refused(task, FORBIDDEN, output, sent=True) for task, output in self._forbidden()]
            self.refused += refused if self._chance.random() < 0.5 else refused[:1]  # the client drops all others

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        self._live()
        if any(to_out(output, self._moods.undelivered) for _, output in self.sent):
            raise UNDELIVERED
        if self._forbidden():
            raise RefusedInTransactionError(f"{REFUSES}: no rights", single=False)
        if self._bad():
            raise RefusedInTransactionError(REFUSES, single=True)
        if self._moods.stale:
            self._moods.stale = False
            raise ILLEGAL_GENERATION
        super().send_offsets(offsets, group_metadata, timeout_ms)

    def killed(self) -> None:
        """A transaction stays open until another producer of the id comes; an end may be on its way."""
        if self._under_way is not None and self._under_way[0] == "commit" and self._chance.random() < 0.5:
            self._coordinator.late.append((self._epoch, True))
            if self._chance.random() < 0.5:
                self._coordinator.deliver()

    def _unanswered(self, name: str) -> None:
        """The end of the transaction is made, or arrives later."""
        if name == "commit":
            self._coordinator.late.append((self._epoch, True))
            self.disconnected = True
            if self._chance.random() < 0.5:
                self._coordinator.deliver()


def to_out(output: Output, keys: Collection[bytes]) -> bool:
    return output.topic == "out" and output.key in keys


def is_refused(output: Output, moods: Moods) -> bool:
    return to_out(output, moods.refused)


def is_alone(output: Output, isolation: BatchIsolation | None) -> bool:
    return isolation is not None and isolation.is_alone(output)


def is_unnamed(output: Output) -> bool:
    """Whether the broker doesn't say of such a record which one of a batch it refuses."""
    return (output.key or b"") >= b"k2"


def refused_with(bad: list[Sent], sent: Sequence[Sent], isolation: BatchIsolation) -> list[Sent]:
    """What is reported of these: themselves only, or, where Kafka doesn't name them, all of their batch."""
    unnamed = any(is_unnamed(output) and not isolation.is_alone(output) for _, output in bad)
    return with_their_batch(bad, sent, isolation) if unnamed else bad


def within_room(
    producer: FakeProducer, outputs: Sequence[Emitted], moods: Moods, more: Mapping[str, Any]
) -> tuple[Sequence[Emitted], Sequence[Emitted]]:
    """The outputs for which there is room, and the others; after the wait, if the caller waits."""
    if moods.room is None or len(outputs) <= moods.room:
        return outputs, ()
    producer.clock.advance(more.get("wait_ms", 0))
    return outputs[: moods.room], outputs[moods.room :]


def without_too_large(
    producer: FakeProducer, task: TaskId, outputs: Sequence[Emitted], moods: Moods, **more: Any
) -> list[Emitted]:
    """The outputs without those that the client refuses at once."""
    bad = [output_of(output) for output in outputs if to_out(output_of(output), moods.too_large)]
    producer.refused += [Refused(task, IS_TOO_LARGE, output, more.get("dead_letters", False)) for output in bad]
    return [output for output in outputs if output_of(output) not in bad]


class LooseProducer(AskedCalls, Ledger):
    """A producer without transactions: what it is given is in the logs some time later, or never, if it is closed
    before; what is refused is told then, with others of its batch. An end of a changelog is told after a flush. From M5
    on a changelog record finds no output of its task that Kafka hasn't."""

    def __init__(self, clients: ChaosClients) -> None:
        super().__init__(clients.logs, clients.member, transactional=False)
        self.clock, self.waits_of, self._moods = clients.clock, clients.waits, clients.moods
        self._wrong = clients.wrong
        self._chance, self._queue = clients.chance, deque[tuple[TaskId, Output, bool]]()
        self._wanted = set[TopicPartition]()

    @property
    def unacknowledged(self) -> int:  # type: ignore[override]
        return len(self._queue)

    def send(self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str] = (), **more: Any) -> Any:
        self._call("send")
        taken, left = within_room(self, outputs, self._moods, more)
        for output in map(output_of, without_too_large(self, task, taken, self._moods, **more)):
            self._queue.append((task, output, more.get("dead_letters", False)))
            if output.topic in changelogs:
                ahead_of = [one for of, one, _ in self._queue if of == task and one.topic not in changelogs]
                self._wrong += [f"{output} is ahead of {one}" for one in ahead_of]
                self._wanted.add(TopicPartition(output.topic, output.partition))
        self.contributors.add(task)
        return left

    def _deliver(self, most: int) -> None:
        end = len(self._queue) - most
        while self._queue and len(self._queue) > end:
            task, output, dead_letter = self._queue.popleft()
            if not to_out(output, self._moods.refused | self._moods.forbidden):
                self._write(output)
                continue
            code = self._moods.error if is_refused(output, self._moods) else FORBIDDEN
            self._refuse(task, output, code, dead_letter)
            alone = is_alone(output, self.isolation) or code is FORBIDDEN
            if not alone and self._queue and self._chance.random() < 0.3:
                other = code if is_unnamed(output) else KafkaError(KafkaError._INVALID_DIFFERENT_RECORD)
                self._refuse(*self._queue.popleft()[:2], other, dead_letter)

    def _refuse(self, task: TaskId, output: Output, code: KafkaError, dead_letter: bool) -> None:
        if self.isolation is None:
            output = output._replace(timestamp=-1, headers=[], node="")
        self.refused.append(Refused(task, code, output, dead_letter, sent=True))

    def poll(self) -> None:
        super().poll()
        self._deliver(self._chance.randrange(len(self._queue) + 1))

    def flush(self, timeout_ms: int) -> None:
        super().flush(timeout_ms)
        if any(to_out(output, self._moods.undelivered) for _, output, _ in self._queue):
            self.clock.advance(timeout_ms)
            raise UNANSWERED
        self._deliver(len(self._queue))
        self.acknowledged |= {at: self._logs[at].end for at in self._wanted}
        self._wanted.clear()

    def killed(self) -> None:
        self._deliver(self._chance.randrange(len(self._queue) + 1))

    def close(self, timeout_ms: int = 0) -> None:
        if not self.closed:
            self._deliver(self._chance.randrange(len(self._queue) + 1))
            self._queue.clear()
        super().close(timeout_ms)
