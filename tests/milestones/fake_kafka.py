"""Kafka without Kafka: clients that answer from logs in memory. Nothing here has a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from milestones.common.assignment.model import Subscription
from milestones.common.errors import MilestonesError
from milestones.common.kafka.admin import AdminCall
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import Committed
from milestones.common.kafka.outputs import WhyFull
from milestones.common.kafka.topic_metadata import number_of
from milestones.common.records import Emitted, OffsetAndMetadata, Output, TaskId, TopicPartition, output_of
from milestones.common.steps import Steps
from milestones.common.testing import StepClock
from milestones.instance.admin_thread import AskBounds, AskTopicIds, Bounds, Purge, TopicIds
from milestones.instance.changelog_trim import Trim
from milestones.stepped.consumer import LogConsumer
from milestones.stepped.kafka import FENCED, ILLEGAL_GENERATION, TIMED_OUT, kafka_error
from milestones.stepped.kafka import ClusterLogs as Logs
from milestones.stepped.kafka import PartitionLog as Log

__all__ = [
    "FENCED", "ILLEGAL_GENERATION", "TIMED_OUT", "FakeClients", "FakeConsumer", "FakeMember", "FakeProducer",
    "FakeRequests", "Log", "Logs", "kafka_error",
]  # fmt: skip


class FakeConsumer(LogConsumer):
    """`waits` has the time-outs of all fetches, `moves` what was assigned; `next` is handed out instead of a fetch."""

    def __init__(self, logs: Logs) -> None:
        super().__init__(logs)
        self.waits: list[int] = []
        self.next: deque[Fetched | Exception] = deque()
        self.moves: list[dict[TopicPartition, int]] = []
        self.fail_assign: Exception | None = None

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        if self.fail_assign is not None:
            raise self.fail_assign
        self.moves.append(dict(positions))
        super().assign(positions)

    def fetch(self, limit: int, timeout_ms: int) -> Fetched:
        self.waits.append(timeout_ms)
        if self.next:
            scripted = self.next.popleft()
            if isinstance(scripted, Exception):
                raise scripted
            return scripted
        return super().fetch(limit, timeout_ms)


class FakeProducer:
    """`OutputProducer`. `calls`: what was done; `timeouts`: of commits; `errors`: what the next call of a name raises;
    `room`: how many outputs it takes in all; `while_full`: what happens while a thread waits for more, by `clock`.
    `known`: the tasks that weren't let go. `withheld`: the calls that have no answer as long as they are in there, or
    until `answers_ms`; then nobody may ask for anything else."""

    blocked_ns = unacknowledged = 0

    def __init__(self, *, transactional: bool = True, clock: StepClock | None = None) -> None:
        self.transactional = transactional
        self.clock = clock or StepClock()
        self.known: frozenset[TaskId] = frozenset()
        self.in_transaction = False
        self.acknowledged: dict[TopicPartition, int] = {}
        self.refused: list[Any] = []
        self.contributors: set[TaskId] = set()
        self.letters: dict[TaskId, Sequence[Emitted]] = {}
        self.undecided: set[Any] = set()
        self.calls: list[str] = []
        self.timeouts: list[int] = []
        self.errors: dict[str, deque[Exception]] = {}
        self.sent: list[tuple[TaskId, Output]] = []
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._ends: dict[TopicPartition, int] = {}
        self.closed = self.disconnected = False
        self.isolation: BatchIsolation | None = None
        self.withheld: set[str] = set()
        self.answers_ms: int | None = None
        self._under_way: tuple[str, Callable[[], None]] | None = None
        self.age: int | None = None
        self.room: int | None = None
        self.missing_topics: tuple[str, ...] = ()
        self.while_full: Callable[[], None] = lambda: None

    def fail(self, call: str, *errors: Exception) -> None:
        self.errors.setdefault(call, deque()).extend(errors)

    def _call(self, name: str) -> None:
        self._must_be_free(name)
        self.calls.append(name)
        if self.errors.get(name):
            raise self.errors[name].popleft()

    def send(
        self,
        task: TaskId,
        outputs: Sequence[Emitted],
        changelogs: Collection[str] = (),
        *,
        wait_ms: int = 0,
        check: Callable[[], None] = lambda: None,
        **_: Any,
    ) -> Sequence[Emitted]:
        self._call("send")
        self.begin()
        self.contributors.add(task)
        taken = self._room_for(outputs)
        if taken < len(outputs) and wait_ms:
            self.clock.advance(wait_ms)
            self.while_full()
            check()
            taken = self._room_for(outputs)
        for output in map(output_of, outputs[:taken]):
            self.sent.append((task, output))
            at = TopicPartition(output.topic, output.partition)
            self._ends[at] = self._ends.get(at, 0) + 1
            if output.topic in changelogs:
                self.acknowledged[at] = self._ends[at]
        return outputs[taken:]

    def _room_for(self, outputs: Sequence[Emitted]) -> int:
        return len(outputs) if self.room is None else max(0, min(self.room - len(self.sent), len(outputs)))

    def why_full(self, topics: Collection[str]) -> WhyFull:
        return WhyFull(f"without a leader: {', '.join(sorted(topics))}", self.missing_topics)

    def forget_all_but(self, tasks: Collection[TaskId]) -> None:
        self.known = frozenset(tasks)

    def poll(self) -> None:
        self._call("poll")

    def flush(self, timeout_ms: int) -> None:
        self._call("flush")

    def begin(self) -> None:
        if self.transactional and not self.in_transaction:
            self._call("begin")
            self.in_transaction = True
            self.contributors.clear()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        self.timeouts.append(timeout_ms)
        self._call("send_offsets")
        self.offsets = dict(offsets)

    def commit(self, timeout_ms: int) -> None:
        self.timeouts.append(timeout_ms)
        self._call("commit")
        self.committed.update(self.offsets)
        self.in_transaction = False

    def begin_flush(self, timeout_ms: int) -> None:
        self._begin("flush", lambda: self.flush(timeout_ms))

    def begin_send_offsets(self, *arguments: Any) -> None:
        self._begin("send_offsets", lambda: self.send_offsets(*arguments))

    def begin_commit(self, timeout_ms: int) -> None:
        self._begin("commit", lambda: self.commit(timeout_ms))

    def begin_abort(self, timeout_ms: int) -> None:
        self._begin("abort", lambda: self.abort(timeout_ms))

    def _begin(self, name: str, call: Callable[[], None]) -> None:
        self._must_be_free(name)
        self._under_way = name, call

    @property
    def busy(self) -> bool:
        return self._under_way is not None and self._under_way[0] != "flush"

    def _must_be_free(self, name: str) -> None:
        if self.busy:
            raise AssertionError(f"{name}, while {self._under_way} is under way")

    def returned(self, wait_ms: int) -> bool:
        if self._under_way is None:
            raise AssertionError("nothing is under way")
        name, call = self._under_way
        if name in self.withheld:
            self.clock.advance(wait_ms)
            if self.answers_ms is None or self.clock.monotonic_ms() < self.answers_ms:
                return False
            self.withheld.clear()
        self._under_way = None
        call()
        return True

    def age_ms(self) -> int | None:
        return (self.age or 0) if self.in_transaction else None

    def abort(self, timeout_ms: int) -> None:
        self._call("abort")
        self.in_transaction = False
        self.acknowledged.clear()
        self.letters.clear()
        self.undecided.clear()

    def init_transactions(self, timeout_ms: int) -> None:
        self._call("init_transactions")

    def begin_init_transactions(self, timeout_ms: int) -> None:
        self._begin("init_transactions", lambda: self.init_transactions(timeout_ms))

    def close(self, timeout_ms: int = 0) -> None:
        self._under_way = None
        self._call("close")
        self.closed = True

    def closing(self, timeout_ms: int = 0) -> Steps[None]:
        yield from ()
        self.close(timeout_ms)


class FakeMember:
    """`GroupMember`. Events are what the test puts into `events`; offsets are answered from `committed` at once, or
    with `answer_error`, unless `holds`. `withholds`: a commit has no answer meanwhile."""

    blocked_ns = 0

    def __init__(self) -> None:
        self.events: deque[Any] = deque()
        self.joins: list[Subscription] = []
        self.rejoins: list[str] = []
        self.gate = self.silent = False
        self.metadata_error: MilestonesError | None = None
        self.answer_error: MilestonesError | None = None
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.commit_errors: deque[Exception] = deque()
        self.holds = self.withholds = False
        self._commit: tuple[Mapping[TopicPartition, OffsetAndMetadata], int] | None = None
        self.questions: list[tuple[int, frozenset[TopicPartition], Any]] = []
        self.on_join: Callable[[Subscription], None] = lambda _: None
        self.on_close: Callable[[], None] = lambda: None
        self.closed: bool | None = None
        self.started = self.left = False
        self.answers_leave = True

    def start(self) -> None:
        self.started = True

    def poll(self) -> list[Any]:
        events = list(self.events)
        self.events.clear()
        return events

    def join(self, subscription: Subscription) -> None:
        self.joins.append(subscription)
        self.on_join(subscription)

    def request_rejoin(self, reason: str) -> None:
        self.rejoins.append(reason)

    def joining(self) -> bool:
        return self.gate

    def session_over(self) -> bool:
        return self.silent

    def metadata(self) -> bytes:
        if self.metadata_error is not None:
            raise self.metadata_error
        return b"metadata"

    def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        if self.commit_errors:
            raise self.commit_errors.popleft()
        self.commits.append(dict(offsets))
        self.committed.update(offsets)

    def begin_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        if self._commit is not None:
            raise AssertionError("a commit is under way")
        self._commit = offsets, timeout_ms

    def commit_returned(self, wait_ms: int) -> bool:
        if self._commit is None:
            raise AssertionError("no commit is under way")
        if self.withholds:
            return False
        (offsets, timeout_ms), self._commit = self._commit, None
        self.commit_offsets(offsets, timeout_ms)
        return True

    def fetch_offsets(self, number: int, partitions: frozenset[TopicPartition], reply_to: Any) -> None:
        self.questions.append((number, partitions, reply_to))
        if not self.holds:
            self.answer(self.answer_error)

    def answer(self, error: MilestonesError | None = None) -> None:
        """Answer all questions that wait."""
        for number, partitions, reply_to in self.questions:
            found = {p: self.committed[p] for p in partitions if p in self.committed}
            reply_to.try_put(Committed(number, {} if error else found, error))
        self.questions.clear()

    def close(self, leave: bool) -> None:
        self.on_close()
        self.closed = leave
        self.left = leave and self.answers_leave


class FakeRequests:
    """The housekeeper's mailbox. Questions are answered at once from the logs, unless `holds`; `error` is the answer
    instead, when set. `asked`: how many there were. `calls` of the admin client get no answer. `ids_asked`: questions
    for topics' ids, which `topic_ids` or `ids_error` answer at once."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.asked = 0
        self.questions: list[AskBounds] = []
        self.purges: list[Purge] = []
        self.trims: list[Trim] = []
        self.calls: list[AdminCall[Any, Any]] = []
        self.holds = False
        self.error: Exception | None = None
        self.topic_ids: dict[str, str] = {}
        self.full = False
        self.ids_asked: list[AskTopicIds] = []
        self.ids_error: Exception | None = None

    def put(self, question: AskBounds | AskTopicIds, timeout_ms: int) -> None:
        if isinstance(question, AskTopicIds):
            self._tell_ids(question)
            return
        self.asked += 1
        self.questions.append(question)
        if not self.holds:
            self.answer()

    def _tell_ids(self, question: AskTopicIds) -> None:
        self.ids_asked.append(question)
        ids = {topic: number_of(id) for topic, id in self.topic_ids.items() if topic in question.topics}
        answer = TopicIds(question.number, {} if self.ids_error else ids, self.ids_error)
        question.reply_to.try_put(answer)

    def try_put(self, request: Purge | Trim | AskTopicIds | AdminCall[Any, Any]) -> bool:
        if self.full:
            return False
        if isinstance(request, AdminCall):
            self.calls.append(request)
        elif isinstance(request, Trim):
            self.trims.append(request)
        elif isinstance(request, AskTopicIds):
            self._tell_ids(request)
        else:
            self.purges.append(request)
        return True

    def answer(self) -> None:
        for question in self.questions:
            bounds = {} if self.error else self.logs.bounds(question.partitions)
            ids = {topic: id for topic, id in self.topic_ids.items() if question.topic_ids and not self.error}
            since = {} if self.error else self.logs.search(question.since)
            question.reply_to.try_put(Bounds(question.task, bounds, self.error, ids, since))
        self.questions.clear()


class FakeClients:
    """`Clients` of one thread."""

    def __init__(self, logs: Logs, *, transactional: bool = True, clock: StepClock | None = None) -> None:
        self._logs = logs
        self.consumer, self.restore_consumer = FakeConsumer(logs), FakeConsumer(logs)
        self.producer: Any = FakeProducer(transactional=transactional, clock=clock)
        self.member = FakeMember()
        self.renewed = 0
        self.within_ms: int | None = None
        self.renewal_error: Exception | None = None
        self.closed: bool | None = None

    def new_producer(self) -> FakeProducer:
        return FakeProducer(transactional=self.producer.transactional, clock=self.producer.clock)

    def new_restore_consumer(self) -> FakeConsumer:
        if self.restore_consumer.closed:
            self.restore_consumer = FakeConsumer(self._logs)
        return self.restore_consumer

    def renew_producer(self, within_ms: int | None = None, *, isolation: BatchIsolation | None = None) -> Steps[None]:
        yield from ()
        self.renewed += 1
        self.within_ms = within_ms
        self.producer.close()
        self.producer = self.new_producer()
        self.producer.isolation = isolation
        if self.renewal_error is not None:
            self.producer.fail("begin", kafka_error(KafkaError._STATE))
            raise self.renewal_error

    def close(self, *, leave_group: bool) -> None:
        self.closed = leave_group
