"""The polling thread's loop with the parts of stage m5, over stepped workers, and a Kafka in memory that fails when a
test says so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaError

from milestones import wiring
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.refusals import Refused, RefusedInTransactionError
from milestones.common.records import Emitted, OffsetAndMetadata, Output, TaskId, TopicPartition, emitted_of, output_of
from milestones.common.steps import Steps, until_returned
from milestones.common.topology.handlers import Action, Response
from milestones.flags import parse_milestones
from milestones.m4_polling_thread.collection import ThreadedProductionHandler
from milestones.m5_committed_collector.collector import CommittedCollector
from milestones.m5_committed_collector.task_failure_policy import ResendingPolicy
from tests.milestones.batches import with_their_batch
from tests.milestones.fake_kafka import FENCED, kafka_error
from tests.milestones.fakes import put
from tests.milestones.m4_polling_thread.polling import PollingWorld, RunningPolling
from tests.milestones.stepped_workers import Ledger

ALOS, EXACTLY_ONCE = "at_least_once", "exactly_once_v2"
INVALID = KafkaError(KafkaError.INVALID_RECORD)
DEAD = kafka_error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)
M5 = wiring.parts(parse_milestones("m5")).thread


@dataclass
class Moods:
    """What Kafka is up to. `refused`: keys whose outputs it refuses; `unnamed`: it doesn't say which of a batch it
    refuses, and all of a transaction for `out` is one, but for outputs that are sent alone; `too_large`: keys whose
    outputs the client itself refuses; `full`: the client has no room for any more; `made_unanswered`: the next end of a
    transaction is made, and its answer lost; `failing_ends`: so many ends kill their producer; `unready`: new producers
    aren't initialised."""

    refused: set[bytes] = field(default_factory=set)
    too_large: set[bytes] = field(default_factory=set)
    unnamed: bool = False
    full: bool = False
    made_unanswered: bool = False
    failing_ends: int = 0
    unready: bool = False


@dataclass
class Try:
    """What one transaction held, or, at least once, what was sent for one commit: outputs and offsets."""

    outputs: list[Output]
    offsets: dict[TopicPartition, OffsetAndMetadata]

    def to(self, topic: str) -> list[Output]:
        return [output for output in self.outputs if output.topic == topic]


class MoodyLedger(Ledger):
    """A producer as bad as `Moods` say. What it puts into a transaction is told to `tries`."""

    def __init__(self, world: CollectorWorld) -> None:
        super().__init__(world.logs, world.member, transactional=world.config.exactly_once)
        self.clock, self._moods, self._tries = world.clock, world.moods, world.tries

    def begin(self) -> None:
        if self.transactional and not self.in_transaction:
            self._tries.append(Try([], {}))
        super().begin()

    def send(
        self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str] = (), **more: Any
    ) -> Sequence[Emitted]:
        if self._moods.full:
            self.clock.advance(more.get("wait_ms", 0))
            return outputs
        taken = [output_of(output) for output in outputs]
        too_large = [one for one in taken if one.topic == "out" and one.key in self._moods.too_large]
        error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        self.refused += [Refused(task, error, output) for output in too_large]
        taken = [one for one in taken if one not in too_large]
        if not self.transactional:
            bad = [one for one in taken if self._is_bad(one)]
            self.refused += [Refused(task, INVALID, output, sent=True) for output in bad]
            taken = [one for one in taken if one not in bad]
        super().send(task, [*map(emitted_of, taken)], changelogs, **more)
        if self.transactional:
            self._tries[-1].outputs += taken
        return ()

    def _is_bad(self, output: Output) -> bool:
        return output.topic == "out" and output.key in self._moods.refused

    def flush(self, timeout_ms: int) -> None:
        super().flush(timeout_ms)
        if self.transactional and self.isolation is not None:
            here = [(task, output) for task, output in self.sent if output in self._open]
            told = [one for one in here if self._is_bad(one[1])]
            if self._moods.unnamed:
                told = with_their_batch(told, here, self.isolation)
            self.refused = [Refused(task, INVALID, one, sent=True) for task, one in told]

    def send_offsets(self, offsets: Any, group_metadata: bytes, timeout_ms: int) -> None:
        self._tries[-1].offsets.update(offsets)
        super().send_offsets(offsets, group_metadata, timeout_ms)
        if any(map(self._is_bad, self._open)):
            raise RefusedInTransactionError("the broker refuses a record", single=True)

    def commit(self, timeout_ms: int) -> None:
        if self._moods.failing_ends:
            self._moods.failing_ends -= 1
            raise DEAD
        super().commit(timeout_ms)
        if self._moods.made_unanswered:
            self._moods.made_unanswered = False
            raise FENCED


class CollectorWorld(PollingWorld):
    """A world of stage m5. `tries`: what each transaction has held."""

    def __init__(self, topology: Any = None, **settings: Any) -> None:
        self.moods, self.tries = Moods(), list[Try]()
        super().__init__(topology, **settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        handlers = self.handlers
        self.clients.producer, self.clients.new_producer = self.new_producer(), self.new_producer  # type: ignore[method-assign]
        self.clients.renew_producer = self.renew_producer  # type: ignore[method-assign]
        self.parts = replace(
            self.parts,
            commit=M5.commit,
            failed_commit=M5.failed_commit,
            confirmation=M5.confirmation,
            recovery=M5.recovery,
            collection=lambda context, clients: CommittedCollector(
                context, clients, ThreadedProductionHandler(context, handlers.launch)
            ),
            task_failure_policy=lambda context: ResendingPolicy(context, handlers.launch),
        )
        self.state.ownership = M5.state  # type: ignore[assignment]

    def new_producer(self) -> MoodyLedger:
        return MoodyLedger(self)

    def renew_producer(self, within_ms: int | None = None, *, isolation: BatchIsolation | None = None) -> Steps[None]:
        """In steps, as the product does: the new producer is there at once, and of use once it is initialised."""
        self.clients.renewed += 1
        old, new = self.producer, self.new_producer()
        self.clients.producer, new.isolation = new, isolation
        if not new.transactional:
            old.close()
            return
        if self.moods.unready:
            new.withheld.add("init_transactions")
        try:
            new.begin_init_transactions(within_ms or 0)
            yield from until_returned(new.returned)
        finally:
            old.close()


class RunningCollector(RunningPolling):
    """A loop with a world of stage m5."""

    world: CollectorWorld

    def __init__(self, world: CollectorWorld | None = None, **settings: Any) -> None:
        defaults = {"commit_interval_ms": 100, "num_processing_threads": 2}
        super().__init__(world or CollectorWorld(**{**defaults, **settings}))

    @property
    def commits(self) -> Any:
        return self.loop._commits

    @property
    def collector(self) -> Any:
        return self.loop._collection

    @property
    def tries(self) -> list[Try]:
        return self.world.tries

    def offset(self, partition: int = 0) -> int | None:
        """What the group has committed of a partition of the input."""
        at = self.world.member.committed.get(TopicPartition("in", partition))
        return None if at is None else at.offset

    def sent(self, topic: str = "out") -> list[tuple[str, int]]:
        """Key and number of what readers of a topic see, by partition of the output."""
        logs = [log for at, log in self.world.logs.items() if at.topic == topic]
        entries: list[Any] = [message for log in logs for message in log.entries if message is not None]
        return [(message.key().decode(), int.from_bytes(message.value(), "big")) for message in entries]

    def until(self, what: Callable[[], object], *, steps: int = 200, ms: int = 10) -> None:
        """Go on until this is so."""
        for _ in range(steps):
            if what():
                return
            self.step(ms=ms)
        raise AssertionError("it doesn't come to that")

    def until_committed(self, *offsets: int) -> None:
        """Go on until the group has these offsets of the input's partitions."""
        self.until(lambda: tuple(map(self.offset, range(len(offsets)))) == offsets)


def committing(call: str, *values: str, **settings: Any) -> RunningCollector:
    """A thread with two tasks, whose commit of these values of the first one waits for the answer to this call."""
    r = RunningCollector(**settings)
    r.run(0, 1)
    withhold(r, call)
    r.feed(*(values or ("a",)), steps=10, ms=5)
    r.step(ms=200)
    r.until(lambda: r.commits.under_way)
    r.step(3)
    assert r.commits.under_way
    return r


def withhold(r: RunningCollector, call: str) -> None:
    """Kafka doesn't answer this call."""
    if call == "OffsetCommit":
        r.world.member.withholds = True
    else:
        r.world.producer.withheld = {call}


def answer(r: RunningCollector) -> None:
    """Kafka answers, and the commit comes to its end."""
    r.world.member.withholds = False
    r.world.producer.withheld.clear()
    r.until(lambda: not r.commits.under_way, ms=0)


def feed_keys(r: RunningCollector, partition: int, *keys: str, value: str = "v") -> None:
    """A record for each of these keys comes for 0_p."""
    for key in keys:
        put(r.world, partition, value, key=key)


def saying(action: Action, *letters: Output) -> Callable[..., Response]:
    """A handler that says this."""
    return lambda context, error: Response(action, letters)


LETTER = Output("letters", 0, b"k", (7).to_bytes(8, "big"), 5, [], None)  # type: ignore[arg-type]
