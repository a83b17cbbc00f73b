"""A driver of a run that is called by hand: no Spark, no Kafka, a step clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from milestones import StreamsConfig
from milestones.common.kafka.membership import LentMembership
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition
from milestones.common.testing.clock import StepClock
from milestones.pipeline.driving.batch_ends import BatchEnds
from milestones.pipeline.driving.driver import Driver, Pace
from milestones.pipeline.driving.spark_thread import Begin, Finished
from milestones.pipeline.hosting.ranges import PunctuationSchedule, RangeEnd, RangeOutcome, TaskRange
from milestones.pipeline.spark_jobs import SparkJobError

FIRST, SECOND = TaskId(0, 0), TaskId(1, 0)
IN, BETWEEN = TopicPartition("in", 0), TopicPartition("between", 0)
SESSION_MS = 10_000
NO_SCHEDULE: PunctuationSchedule = ({}, {})


class FakeDriverMembership:
    """Both tasks, from generation 1 on."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, tuple[TopicPartition, ...]] = {FIRST: (IN,), SECOND: (BETWEEN,)}
        self.lent: LentMembership | None = LentMembership("m", 1)
        self.wanted: str | None = None
        self.busy: frozenset[TaskId] = frozenset()
        self.promised: frozenset[TaskId] = frozenset()
        self.generations = 1
        self.claimed: list[frozenset[TaskId]] = []
        self.asked: list[str] = []
        self.left: bool | None = None

    def start(self) -> None: ...

    def run_once(self) -> None: ...

    def join(self) -> None:
        self.claimed.append(frozenset(self.tasks) | self.busy)
        self.wanted = self.lent = None

    def assign(self, generation: int) -> None:
        self.lent, self.generations = LentMembership("m", generation), generation

    def ask_for_generation(self, reason: str) -> None:
        self.asked.append(reason)

    def close(self, *, leave: bool) -> None:
        self.left = leave


class FakeKafka:
    """`written`: where partitions end, `offsets`: how far the application is."""

    def __init__(self) -> None:
        self.written = {IN: 0, BETWEEN: 0}
        self.offsets = {IN: 0, BETWEEN: 0}
        self.others_write = {IN: 0, BETWEEN: 0}
        self.batch_ends: BatchEnds | None = None
        self.error: int | None = None
        """The code with which it answers questions about offsets."""
        self.purges = 0
        self.gone: dict[TopicPartition, int] = {}
        self.news: frozenset[str] | Exception = frozenset()

    def prepare(self) -> None: ...

    def look(self, tasks: Mapping[TaskId, Sequence[TopicPartition]], *, settled: bool) -> Any:
        if self.error is not None:
            raise KafkaException(KafkaError(self.error))
        for (at,) in tasks.values():
            self.written[at] += self.others_write[at]
        asked = {at: self.written[at] for inputs in tasks.values() for at in inputs}
        outer, inner = ({at: end for at, end in asked.items() if (at is IN) is which} for which in (True, False))
        ends = {**outer, **inner} if self.batch_ends is None else self.batch_ends.ends(outer, inner, settled=settled)
        return ends, dict(self.offsets)

    def reopen(self) -> None:
        if self.batch_ends is not None:
            self.batch_ends.reopen()

    def watch(self) -> frozenset[str]:
        if isinstance(self.news, Exception):
            raise self.news
        return self.news

    def everything(self) -> frozenset[TaskId]:
        return frozenset({FIRST, SECOND, TaskId(9, 9)})

    def committed(self, partitions: Collection[TopicPartition]) -> Any:
        return {at: offset for at, offset in self.offsets.items() if at in partitions}

    def purge(self, tasks: object) -> None:
        self.purges += 1

    def trim(self, gone: Mapping[TopicPartition, int], wall_ms: int) -> None:
        self.gone = dict(gone)

    def close(self) -> None: ...


class FakeSpark:
    """Takes orders; the test says how they end."""

    def __init__(self, done: Mailbox[Finished]) -> None:
        self.done = done
        self.orders: list[Begin] = []
        self.cancelled = self.closed = False

    def start(self) -> None: ...

    def begin(self, order: Begin) -> None:
        self.orders.append(order)

    def cancel(self) -> None:
        self.cancelled = True
        self.done.try_put(Finished(len(self.orders)))

    def close(self) -> None:
        self.closed = True


class Bench:
    def __init__(self, pace: Pace, **settings: Any) -> None:
        self.clock, self.kafka, self.membership = StepClock(), FakeKafka(), FakeDriverMembership()
        self.spark: FakeSpark
        self.kafka.batch_ends = BatchEnds(()) if pace.batch else None
        config = StreamsConfig(
            application_id="a", bootstrap_servers="b:1", session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1_000,
            **{"processing_guarantee": "exactly_once_v2", **settings}, variables={},
        )  # fmt: skip
        self.driver = Driver(
            config, ((0,), (1,)), pace, self.clock,
            membership=lambda: self.membership,  # type: ignore[arg-type, return-value]
            view=lambda: self.kafka,  # type: ignore[arg-type, return-value]
            spark=self._make_spark,  # type: ignore[arg-type]
        )  # fmt: skip
        self.driver._view, self.driver._membership = self.kafka, self.membership  # type: ignore[assignment]

    def _make_spark(self, done: Mailbox[Finished]) -> FakeSpark:
        self.spark = FakeSpark(done)
        return self.spark

    def step(self, ms: int = 0) -> bool:
        self.clock.advance(ms)
        return self.driver.run_once(self.clock.monotonic_ms())

    @property
    def ranges(self) -> Sequence[TaskRange]:
        return self.spark.orders[-1].ranges

    def work(self, *, end: RangeEnd = RangeEnd.DONE, produces: int = 0, **more: Any) -> None:
        """The job that runs ends; what it has done is committed, and it has written so much for the second level."""
        outcomes = []
        for range_ in self.ranges:
            done = end is RangeEnd.DONE
            if done:
                self.kafka.offsets.update(range_.ends)
            records, known = range_.size if done else 0, {"schedule": NO_SCHEDULE, **more}
            outcomes.append(RangeOutcome(range_.task, end, records, **known))
        self.kafka.written[BETWEEN] += produces
        self.spark.done.try_put(Finished(len(self.spark.orders), outcomes))

    def finish(self, **work: Any) -> bool:
        """The job that runs ends like that; then the driver looks."""
        self.work(**work)
        return self.step()

    def fails(self) -> None:
        error = SparkJobError("executor lost")
        self.spark.done.try_put(Finished(len(self.spark.orders), error=error))


def ten_records(**settings: Any) -> Bench:
    """A batch with ten records to read."""
    bench = Bench(Pace(None), **settings)
    bench.kafka.written[IN] = 10
    return bench
