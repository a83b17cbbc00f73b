"""The Kafka clients of one stepped process, on a `SteppedKafka`.

*Guarantees*: each has the methods of the real client that the loop of a stage without further threads calls. Kafka
answers immediately.
*Assumes*: one thread; the process is the only member of its group.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException

from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.kafka.admin import AdminCall
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.failures import error_of
from milestones.common.kafka.membership import Assigned, Committed, JoinNeeded
from milestones.common.kafka.outputs import WhyFull
from milestones.common.mailbox import Mailbox
from milestones.common.records import Emitted, OffsetAndMetadata, Output, TaskId, TopicPartition, output_of
from milestones.common.steps import Steps
from milestones.instance.admin_thread import AskBounds, AskTopicIds, Bounds, Purge, Request, TopicIds
from milestones.stepped.consumer import LogConsumer
from milestones.stepped.kafka import SteppedKafka
from milestones.stepped.process import SteppedProcess

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class ProducerBooks:
    """The attributes of a producer that the parts read. They mean the same as those of `OutputProducer`. Nothing is
    ever refused, and no dead letter waits, as this producer takes every output."""

    blocked_ns = unacknowledged = 0
    busy = disconnected = False

    def __init__(self, *, transactional: bool, isolation: BatchIsolation | None) -> None:
        self.transactional, self.isolation = transactional, isolation
        self.in_transaction = False
        self.acknowledged: dict[TopicPartition, int] = {}
        self.contributors: set[TaskId] = set()
        self.refused: list[Any] = []
        self.letters: dict[TaskId, Sequence[Emitted]] = {}
        self.undecided: set[Any] = set()

    def age_ms(self) -> int | None:
        return 0 if self.in_transaction else None


class LedgerProducer(ProducerBooks):
    """An `OutputProducer` that writes outputs when their transaction commits. Without transactions it writes them
    immediately."""

    def __init__(
        self,
        kafka: SteppedKafka,
        process: SteppedProcess,
        *,
        transactional: bool,
        isolation: BatchIsolation | None = None,
    ) -> None:
        super().__init__(transactional=transactional, isolation=isolation)
        self._kafka, self._process = kafka, process
        self._outputs: list[Output] = []
        self._offsets: Offsets = {}
        self._begun: Callable[[], None] | None = None
        self._fatal: KafkaException | None = None

    def _call(self, name: str) -> None:
        """Make a call, as long as no fatal error has ended this producer."""
        self._process.check()
        if self._fatal is not None:
            raise self._fatal
        try:
            self._kafka.note(name)
        except KafkaException as error:
            kafka = error_of(error)
            self._fatal = error if kafka is not None and kafka.fatal() else None
            raise

    def begin(self) -> None:
        if self.transactional and not self.in_transaction:
            self._call("begin")
            self.in_transaction = True
            self.contributors.clear()

    def send(
        self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str] = (), **_: Any
    ) -> Sequence[Emitted]:
        self.begin()
        self._call("send")
        self.contributors.add(task)
        new = [output_of(output) for output in outputs]
        self._outputs += new
        changed = {self._place(output) for output in new if output.topic in changelogs}
        waiting = Counter(map(self._place, self._outputs)) if changed else Counter()
        self.acknowledged.update({at: self._kafka.logs[at].end + waiting[at] for at in changed})
        if not self.transactional:
            self._write()
        return ()

    def _place(self, output: Output) -> TopicPartition:
        return self._kafka.at(output.topic, output.key, output.partition)

    def _write(self) -> None:
        self._kafka.write(self._outputs)
        self._outputs.clear()

    def poll(self) -> None:
        self._process.check()

    def why_full(self, topics: Collection[str]) -> WhyFull:
        raise AssertionError("this producer is never full")

    def forget_all_but(self, tasks: Collection[TaskId]) -> None:
        """Do nothing: this producer has no delivery reports."""

    def begin_flush(self, timeout_ms: int) -> None:
        self._begun = lambda: self.flush(timeout_ms)

    def begin_send_offsets(self, offsets: Offsets, group_metadata: bytes, timeout_ms: int) -> None:
        self._begun = lambda: self._send_offsets(offsets)

    def begin_commit(self, timeout_ms: int) -> None:
        self._begun = self._commit

    def begin_abort(self, timeout_ms: int) -> None:
        self._begun = lambda: self.abort(timeout_ms)

    def returned(self, wait_ms: int) -> bool:
        """Make the call that was begun. Raises the error that is planted for it."""
        begun, self._begun = self._begun, None
        if begun is None:
            raise AssertionError("no call is under way")
        begun()
        return True

    def flush(self, timeout_ms: int) -> None:
        self._call("flush")

    def _send_offsets(self, offsets: Offsets) -> None:
        self._call("send_offsets")
        self._offsets = dict(offsets)

    def _commit(self) -> None:
        self._call("commit")
        self._kafka.committed.update(self._offsets)
        self._write()
        self._end()

    def abort(self, timeout_ms: int) -> None:
        self._call("abort")
        self._outputs.clear()
        self.acknowledged.clear()
        self._end()

    def _end(self) -> None:
        self.in_transaction, self._offsets = False, {}
        self.letters.clear()
        self.undecided.clear()

    def close(self, timeout_ms: int = 0) -> None:
        """End the open transaction without a commit, as the next producer of the same id does."""
        self._outputs.clear()
        self._begun = None

    def closing(self, timeout_ms: int = 0) -> Steps[None]:
        yield from ()
        self.close(timeout_ms)


class GroupOfOne:
    """A `GroupMember` that gets all tasks whenever it joins."""

    blocked_ns = 0
    left = False

    def __init__(
        self,
        kafka: SteppedKafka,
        process: SteppedProcess,
        tasks: Mapping[TaskId, tuple[TopicPartition, ...]],
    ) -> None:
        self._kafka, self._process, self._tasks = kafka, process, tasks
        self._events: deque[JoinNeeded | Assigned] = deque()
        self._generation = 0
        self._commit: Offsets | None = None

    def start(self) -> None:
        self._events.append(JoinNeeded("a new member"))

    def poll(self) -> list[JoinNeeded | Assigned]:
        events = list(self._events)
        self._events.clear()
        return events

    def join(self, subscription: Subscription) -> None:
        self._generation += 1
        all_tasks = Assignment(active=frozenset(self._tasks), partitions=self._tasks)
        self._events.append(Assigned(self._generation, "member", all_tasks))

    def request_rejoin(self, reason: str) -> None:
        self._events.append(JoinNeeded(reason))

    def joining(self) -> bool:
        return any(isinstance(event, Assigned) for event in self._events)

    def session_over(self) -> bool:
        return False

    def metadata(self) -> bytes:
        return b"%d" % self._generation

    def begin_commit(self, offsets: Offsets, timeout_ms: int) -> None:
        self._commit = dict(offsets)

    def commit_returned(self, wait_ms: int) -> bool:
        offsets, self._commit = self._commit, None
        if offsets is None:
            raise AssertionError("no commit is under way")
        self._process.check()
        self._kafka.note("commit_offsets")
        self._kafka.committed.update(offsets)
        return True

    def fetch_offsets(self, number: int, partitions: frozenset[TopicPartition], reply_to: Mailbox[Committed]) -> None:
        found = {each: self._kafka.committed[each] for each in partitions if each in self._kafka.committed}
        reply_to.try_put(Committed(number, found))

    def close(self, leave: bool) -> None:
        self.left = leave


class AnsweredRequests:
    """The housekeeper's mailbox. Questions about offsets are answered immediately, and purges are carried out. Other
    requests get no answer, such as those for the lags of paused partitions."""

    def __init__(self, kafka: SteppedKafka, process: SteppedProcess) -> None:
        self._kafka, self._process = kafka, process

    def put(self, request: Request, timeout_ms: int) -> None:
        self.try_put(request)

    def try_put(self, request: Request) -> bool:
        logs = self._kafka.logs
        match request:
            case AskBounds():
                bounds, since = logs.bounds(request.partitions), logs.search(request.since)
                request.reply_to.try_put(Bounds(request.task, bounds, since=since))
            case AskTopicIds():
                request.reply_to.try_put(TopicIds(request.number, {}))
            case Purge():
                self._process.check()
                for partition, offset in request.offsets.items():
                    logs[partition].cut_to(max(offset, logs[partition].first))
            case AdminCall():
                pass
        return True


class SteppedClients:
    """The `Clients` of one process."""

    def __init__(
        self,
        kafka: SteppedKafka,
        process: SteppedProcess,
        tasks: Mapping[TaskId, tuple[TopicPartition, ...]],
        *,
        transactional: bool,
    ) -> None:
        self._kafka, self._process, self._transactional = kafka, process, transactional
        self.consumer = self.new_restore_consumer()
        self.producer = self._new_producer()
        self.member = GroupOfOne(kafka, process, tasks)

    def new_restore_consumer(self) -> LogConsumer:
        return LogConsumer(self._kafka.logs, self._kafka.partitions_of)

    def _new_producer(self, isolation: BatchIsolation | None = None) -> LedgerProducer:
        return LedgerProducer(self._kafka, self._process, transactional=self._transactional, isolation=isolation)

    def renew_producer(self, within_ms: int | None = None, *, isolation: BatchIsolation | None = None) -> Steps[None]:
        yield from ()
        self._process.check()
        self._kafka.calls.append("new producer")
        self.producer.close()
        self.producer = self._new_producer(isolation)

    def close(self, *, leave_group: bool) -> None:
        self.producer.close()
        self.member.close(leave_group)
        self.consumer.close()
