"""The driver of a run, step by step: no Spark, no Kafka, a step clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones import SourceTopicError, StreamsConfig
from milestones.common.kafka.membership import Loan
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition
from milestones.common.testing.clock import StepClock
from milestones.pipeline.driving.caps import Caps
from milestones.pipeline.driving.driver import KILL_MS, PATIENCE_MS, Driver, Pace, TaskFailedError
from milestones.pipeline.driving.losses import MAX_FAILURES, PAUSE_MS
from milestones.pipeline.driving.spark_thread import Begin, Finished
from milestones.pipeline.hosting.ranges import Fate, Outcome, Rhythm, TaskRange
from milestones.pipeline.spark_jobs import SparkJobError

FIRST, SECOND = TaskId(0, 0), TaskId(1, 0)
IN, BETWEEN = TopicPartition("in", 0), TopicPartition("between", 0)
SESSION_MS = 10_000
NO_RHYTHM: Rhythm = ({}, {})


class FakeSeat:
    """Both tasks, from generation 1 on."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, tuple[TopicPartition, ...]] = {FIRST: (IN,), SECOND: (BETWEEN,)}
        self.loan: Loan | None = Loan("m", 1)
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
        self.wanted = self.loan = None

    def assign(self, generation: int) -> None:
        self.loan, self.generations = Loan("m", generation), generation

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
        self.caps: Caps | None = None
        self.away = False
        self.purges = 0
        self.news: frozenset[str] | Exception = frozenset()

    def prepare(self) -> None: ...

    def look(self, tasks: Mapping[TaskId, Sequence[TopicPartition]], *, settled: bool) -> Any:
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        for (at,) in tasks.values():
            self.written[at] += self.others_write[at]
        asked = {at: self.written[at] for inputs in tasks.values() for at in inputs}
        outer, inner = ({at: end for at, end in asked.items() if (at is IN) is which} for which in (True, False))
        ends = {**outer, **inner} if self.caps is None else self.caps.ends(outer, inner, settled=settled)
        return ends, dict(self.offsets)

    def reopen(self) -> None: ...

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
    """A driver that is called by hand."""

    def __init__(self, pace: Pace, **settings: Any) -> None:
        self.clock, self.kafka, self.seat = StepClock(), FakeKafka(), FakeSeat()
        self.spark: FakeSpark
        self.kafka.caps = Caps(()) if pace.batch else None
        config = StreamsConfig(
            application_id="a", bootstrap_servers="b:1", session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1_000,
            **{"processing_guarantee": "exactly_once_v2", **settings}, variables={},
        )  # fmt: skip
        self.driver = Driver(
            config, ((0,), (1,)), pace, self.clock,
            seat=lambda: self.seat,  # type: ignore[arg-type, return-value]
            view=lambda: self.kafka,  # type: ignore[arg-type, return-value]
            spark=self._make_spark,  # type: ignore[arg-type]
        )  # fmt: skip
        self.driver._view, self.driver._seat = self.kafka, self.seat  # type: ignore[assignment]

    def _make_spark(self, done: Mailbox[Finished]) -> FakeSpark:
        self.spark = FakeSpark(done)
        return self.spark

    def step(self, ms: int = 0) -> bool:
        self.clock.advance(ms)
        return self.driver.run_once(self.clock.monotonic_ms())

    @property
    def ranges(self) -> Sequence[TaskRange]:
        return self.spark.orders[-1].ranges

    def work(self, *, fate: Fate = Fate.DONE, produces: int = 0, **more: Any) -> None:
        """The job that runs ends; what it has done is committed, and it has written so much for the second level."""
        outcomes = []
        for range_ in self.ranges:
            done = fate is Fate.DONE
            if done:
                self.kafka.offsets.update(range_.ends)
            outcomes.append(Outcome(range_.task, fate, range_.size if done else 0, **{"rhythm": NO_RHYTHM, **more}))
        self.kafka.written[BETWEEN] += produces
        self.spark.done.try_put(Finished(len(self.spark.orders), outcomes))

    def fails(self) -> None:
        error = SparkJobError("executor lost")
        self.spark.done.try_put(Finished(len(self.spark.orders), error=error))


@pytest.fixture
def batch() -> Bench:
    bench = Bench(Pace(None))
    bench.kafka.written[IN] = 10
    return bench


def test_a_batch_goes_down_the_levels_and_ends_when_nothing_is_left(batch: Bench) -> None:
    assert not batch.step()
    assert [range_.task for range_ in batch.ranges] == [FIRST]
    assert batch.ranges[0].ends == {IN: 10}
    batch.work(produces=7)
    assert not batch.step()
    assert [range_.task for range_ in batch.ranges] == [SECOND]
    assert batch.ranges[0].ends == {BETWEEN: 7}
    batch.work()
    assert not batch.step()
    assert batch.step()
    progress = batch.driver.progress
    assert (progress.jobs, progress.records, progress.lag, progress.elsewhere) == (2, 17, 0, 1)
    assert batch.kafka.purges == 2


def test_a_batch_ends_though_others_go_on_writing_to_all_its_topics(batch: Bench) -> None:
    batch.kafka.others_write = {IN: 0, BETWEEN: 5}
    for _ in range(10):
        if batch.step():
            break
        if batch.driver._running is not None:
            batch.work(produces=7 if batch.ranges[0].task == FIRST else 0)
    else:
        raise AssertionError("it goes on for ever")
    assert batch.kafka.offsets[IN] == 10
    assert batch.kafka.offsets[BETWEEN] >= 7


def test_a_batch_with_nothing_to_do_begins_no_job() -> None:
    bench = Bench(Pace(None))
    assert bench.step()
    assert bench.spark.orders == []


def test_a_batch_waits_for_tasks_that_it_was_promised(batch: Bench) -> None:
    batch.kafka.offsets[IN] = 10
    batch.seat.promised = frozenset({TaskId(0, 1)})
    assert not batch.step()
    batch.seat.promised = frozenset()
    assert batch.step()


def test_what_a_generation_took_is_planned_again_under_the_next(batch: Bench) -> None:
    batch.step()
    batch.work(fate=Fate.STALE)
    batch.seat.wanted = "somebody came"
    batch.step()
    assert batch.seat.claimed == [frozenset({FIRST, SECOND})]
    assert len(batch.spark.orders) == 1
    batch.seat.assign(2)
    batch.step()
    batch.step()
    assert [order.ranges[0].loan.generation for order in batch.spark.orders] == [1, 2]


def test_a_rebalance_waits_a_little_for_the_job_then_goes_on_without_it(batch: Bench) -> None:
    batch.step()
    batch.seat.wanted = "somebody came"
    batch.step()
    batch.step(PATIENCE_MS - 1)
    assert batch.seat.claimed == []
    batch.step(1)
    assert batch.seat.claimed == [frozenset({FIRST, SECOND})]


def test_a_task_that_is_worked_on_stays_claimed_though_it_was_given_away(batch: Bench) -> None:
    batch.step()
    batch.seat.tasks = {}
    batch.seat.wanted = "again"
    batch.step()
    batch.step(PATIENCE_MS)
    assert batch.seat.claimed == [frozenset({FIRST})]


def keep_failing(bench: Bench, jobs: int, *, brings: int) -> None:
    """Each job commits `brings` more offsets of its input, then Spark gives it up."""
    for _ in range(jobs):
        before = len(bench.spark.orders)
        while len(bench.spark.orders) == before:
            bench.step(PAUSE_MS)
        bench.kafka.offsets[IN] += brings
        bench.fails()


def test_a_job_that_spark_gave_up_is_planned_again_after_a_pause(batch: Bench) -> None:
    batch.step()
    batch.fails()
    batch.step()
    batch.step(PAUSE_MS - 1)
    assert len(batch.spark.orders) == 1
    for _ in range(2):
        batch.step(1)
    assert [order.ranges[0].task for order in batch.spark.orders] == [FIRST, FIRST]
    assert batch.driver.progress.failed_jobs == 1


def test_jobs_that_bring_nothing_again_and_again_end_the_run(batch: Bench) -> None:
    with pytest.raises(SparkJobError, match="executor lost"):
        keep_failing(batch, 3 * MAX_FAILURES, brings=0)
    assert len(batch.spark.orders) == MAX_FAILURES


def test_jobs_that_fail_but_commit_something_each_time_go_on(batch: Bench) -> None:
    batch.kafka.written[IN] = 1_000
    keep_failing(batch, 3 * MAX_FAILURES, brings=1)
    assert len(batch.spark.orders) == 3 * MAX_FAILURES


def test_an_error_that_no_attempt_would_change_ends_the_run(batch: Bench) -> None:
    batch.step()
    batch.work(fate=Fate.FAILED, error="ProcessingError: bad", exit_code=1, where="host/7")
    with pytest.raises(TaskFailedError, match="task 0_0 on host/7: ProcessingError: bad"):
        batch.step()


@pytest.mark.parametrize("how", [lambda b: b.fails(), lambda b: b.work(fate=Fate.TOO_LATE)])
def test_at_least_once_a_lost_attempts_task_rests_for_a_session_under_a_new_generation(
    how: Callable[[Bench], None],
) -> None:
    bench = Bench(Pace(None), processing_guarantee="at_least_once")
    bench.kafka.written[IN] = 10
    bench.step()
    how(bench)
    bench.step()
    assert bench.seat.asked == ["an attempt was lost"]
    bench.seat.wanted = "rebalance"
    bench.step(1)
    assert bench.seat.claimed == [frozenset({FIRST, SECOND})]
    bench.step(2 * SESSION_MS)
    bench.seat.assign(2)
    bench.step()
    bench.step(SESSION_MS - 1)
    assert len(bench.spark.orders) == 1
    bench.step(1)
    bench.step()
    assert bench.ranges[0].loan.generation == 2


def test_micro_batches_keep_their_interval() -> None:
    bench = Bench(Pace(1_000))
    assert not bench.step()
    bench.work()  # each task runs for a first time
    bench.step()
    bench.work()
    bench.step()
    bench.kafka.written[IN] = 5
    bench.step(500)
    assert len(bench.spark.orders) == 2
    bench.step(500)
    assert bench.ranges[0].ends == {IN: 5}


def test_a_task_whose_punctuation_is_due_runs_without_input() -> None:
    bench = Bench(Pace(1_000))
    bench.step()
    bench.work(rhythm=({}, {1: bench.clock.wall_ms() + 3_000}), due_ms=bench.clock.wall_ms() + 3_000)
    bench.step()
    bench.work()
    for _ in range(3):
        bench.step(1_000)
    bench.step()
    assert len(bench.spark.orders) == 3
    assert bench.ranges[0].task == FIRST
    assert bench.ranges[0].rhythm is not None


def test_a_retry_that_finds_all_committed_changes_nothing_about_when_punctuations_are_due() -> None:
    bench = Bench(Pace(1_000))
    due_ms = bench.clock.wall_ms() + 3_000
    bench.step()
    bench.work(rhythm=({}, {1: due_ms}), due_ms=due_ms)
    bench.step()
    bench.work()
    bench.step()
    bench.kafka.written[IN] = 5
    bench.step(1_000)
    bench.work(rhythm=None)
    bench.step()
    bench.step(1_000)
    assert len(bench.spark.orders) == 3
    bench.step(1_000)
    assert len(bench.spark.orders) == 4
    assert (bench.ranges[0].task, bench.ranges[0].rhythm) == (FIRST, ({}, {1: due_ms}))


def test_a_task_of_which_a_retry_has_told_nothing_yet_runs_for_a_first_time() -> None:
    bench = Bench(Pace(1_000))
    bench.step()
    bench.work(rhythm=None)
    bench.step()
    bench.work()
    bench.step()
    bench.step(1_000)
    assert [range_.task for range_ in bench.ranges] == [FIRST]


def test_kafka_that_cant_answer_is_asked_again_and_the_level_isnt_passed_over(batch: Bench) -> None:
    batch.kafka.away = True
    assert not batch.step()
    batch.kafka.away = False
    assert not batch.step(500)
    assert batch.spark.orders == []
    batch.step(500)
    assert batch.ranges[0].task == FIRST


def test_kafka_that_cant_answer_for_too_long_ends_the_run() -> None:
    bench = Bench(Pace(None), task_timeout_ms=5_000)
    bench.kafka.away = True
    for _ in range(6):
        bench.step(1_000)
    with pytest.raises(KafkaException):
        bench.step(1_000)


def test_a_source_topic_that_has_changed_ends_the_run_and_a_new_one_is_the_groups_to_assign() -> None:
    bench = Bench(Pace(1_000))
    bench.kafka.news = frozenset({"new"})
    bench.step()
    assert bench.seat.asked == ["new source topics: new"]
    bench.kafka.news = SourceTopicError("in has more partitions")
    bench.work()
    bench.step()
    bench.work()
    bench.step()
    with pytest.raises(SourceTopicError):
        bench.step(5_000)


def test_a_stop_waits_for_the_job_then_has_the_group_go_on(batch: Bench) -> None:
    batch.step()
    batch.driver.ask_to_stop()
    assert not batch.step()
    assert not batch.step(PATIENCE_MS)
    assert batch.seat.asked == ["this run is to stop"]
    batch.seat.wanted = "this run is to stop"
    batch.step()
    batch.step(PATIENCE_MS)
    assert len(batch.seat.claimed) == 1
    batch.work(fate=Fate.STALE)
    assert batch.step()


def test_a_stop_between_two_jobs_is_the_end_at_once() -> None:
    bench = Bench(Pace(1_000))
    bench.driver.ask_to_stop()
    assert bench.step()


def test_a_stop_kills_user_code_that_doesnt_come_back(batch: Bench) -> None:
    batch.step()
    batch.driver.ask_to_stop()
    batch.step()
    batch.step(PATIENCE_MS)
    batch.step(KILL_MS - 1)
    assert not batch.spark.cancelled
    batch.step(1)
    assert batch.spark.cancelled
    assert batch.step()


def close_of(guarantee: str, *after: Callable[[Bench], None]) -> Bench:
    """A run that ends after all that, amid its work."""
    bench = Bench(Pace(None), processing_guarantee=guarantee)
    bench.kafka.written[IN] = 10
    bench.step()
    for one in after:
        one(bench)
    bench.driver._close()
    return bench


def in_one_job(*outcomes: Outcome) -> Callable[[Bench], None]:
    def end(bench: Bench) -> None:
        bench.spark.done.try_put(Finished(1, outcomes))
        with pytest.raises(TaskFailedError):
            bench.step()

    return end


REFUSED = Outcome(FIRST, Fate.FAILED, error="bad")
LEFT_ALONE = Outcome(SECOND, Fate.TOO_LATE)


@pytest.mark.parametrize(
    "after",
    [
        (),
        (lambda bench: bench.fails(), lambda bench: bench.step()),
        (in_one_job(REFUSED, LEFT_ALONE),),
    ],
    ids=["amid a job", "while a lost one rests", "after an error beside a lost attempt"],
)
def test_a_place_in_the_group_is_kept_while_an_attempt_may_write_that_nothing_fences(
    after: tuple[Callable[[Bench], None], ...],
) -> None:
    assert close_of("at_least_once", *after).seat.left is False
    assert close_of("exactly_once_v2", *after).seat.left is True


def test_after_an_error_nothing_keeps_the_place_in_the_group_when_all_attempts_have_ended() -> None:
    assert close_of("at_least_once", in_one_job(REFUSED)).seat.left is True


def test_what_spark_works_on_is_cancelled_at_the_end() -> None:
    assert close_of("at_least_once").spark.cancelled
