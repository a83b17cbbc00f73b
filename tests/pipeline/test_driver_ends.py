"""What the driver of a run does about jobs that are lost, and how it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import SourceTopicError
from milestones.pipeline.driving.driver import KILL_MS, PATIENCE_MS, Pace, TaskFailedError
from milestones.pipeline.driving.lost_attempts import MAX_FAILURES, PAUSE_MS
from milestones.pipeline.driving.spark_thread import Finished
from milestones.pipeline.hosting.ranges import RangeEnd, RangeOutcome
from milestones.pipeline.progress import RunState
from milestones.pipeline.spark_jobs import SparkJobError
from tests.pipeline.driver_bench import FIRST, IN, SECOND, SESSION_MS, Bench, ten_records


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
    batch.work(end=RangeEnd.FAILED, error="ProcessingError: bad", exit_code=1, where="host/7")
    with pytest.raises(TaskFailedError, match="task 0_0 on host/7: ProcessingError: bad"):
        batch.step()


@pytest.mark.parametrize("how", [lambda b: b.fails(), lambda b: b.work(end=RangeEnd.TOO_LATE)])
def test_at_least_once_a_lost_attempts_task_rests_for_a_session_under_a_new_generation(
    how: Callable[[Bench], None],
) -> None:
    bench = Bench(Pace(None), processing_guarantee="at_least_once")
    bench.kafka.written[IN] = 10
    bench.step()
    how(bench)
    bench.step()
    assert bench.membership.asked == ["an attempt was lost"]
    bench.membership.wanted = "rebalance"
    bench.step(1)
    assert bench.membership.claimed == [frozenset({FIRST, SECOND})]
    bench.step(2 * SESSION_MS)
    bench.membership.assign(2)
    bench.step()
    bench.step(SESSION_MS - 1)
    assert len(bench.spark.orders) == 1
    bench.step(1)
    bench.step()
    assert bench.ranges[0].lent.generation == 2


def test_kafka_that_cant_answer_for_too_long_ends_the_run() -> None:
    bench = Bench(Pace(None), task_timeout_ms=5_000)
    bench.kafka.error = KafkaError._TRANSPORT
    for _ in range(6):
        bench.step(1_000)
    with pytest.raises(KafkaException):
        bench.step(1_000)


def test_an_input_that_a_broker_does_not_know_ends_the_run_once_a_look_at_the_topics_names_it() -> None:
    bench = ten_records()
    bench.step()
    bench.kafka.error = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert not bench.finish()
    bench.kafka.news = SourceTopicError("source topic in was deleted")
    with pytest.raises(SourceTopicError, match="in was deleted"):
        bench.step(1_000)


def test_a_broker_that_has_just_started_and_knows_an_input_a_little_later_ends_no_run(batch: Bench) -> None:
    batch.kafka.error = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert not batch.step()
    batch.kafka.error = None
    batch.step(1_000)
    assert batch.ranges[0].task == FIRST


def test_a_stop_waits_for_the_job_then_has_the_group_go_on(batch: Bench) -> None:
    batch.step()
    batch.driver.ask_to_stop()
    assert not batch.step()
    assert not batch.step(PATIENCE_MS)
    assert batch.membership.asked == ["this run is to stop"]
    batch.membership.wanted = "this run is to stop"
    batch.step()
    batch.step(PATIENCE_MS)
    assert len(batch.membership.claimed) == 1
    assert batch.finish(end=RangeEnd.STALE)


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


def in_one_job(*outcomes: RangeOutcome) -> Callable[[Bench], None]:
    def end(bench: Bench) -> None:
        bench.spark.done.try_put(Finished(1, outcomes))
        with pytest.raises(TaskFailedError):
            bench.step()

    return end


REFUSED = RangeOutcome(FIRST, RangeEnd.FAILED, error="bad")
LEFT_ALONE = RangeOutcome(SECOND, RangeEnd.TOO_LATE)


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
    assert close_of("at_least_once", *after).membership.left is False
    assert close_of("exactly_once_v2", *after).membership.left is True


def test_after_an_error_nothing_keeps_the_place_in_the_group_when_all_attempts_have_ended() -> None:
    assert close_of("at_least_once", in_one_job(REFUSED)).membership.left is True


def test_what_spark_works_on_is_cancelled_at_the_end() -> None:
    assert close_of("at_least_once").spark.cancelled


def test_a_batch_that_came_to_its_end_is_complete_and_one_that_was_stopped_isnt() -> None:
    done, stopped = Bench(Pace(None)), ten_records()
    stopped.driver.ask_to_stop()
    for bench in (done, stopped):
        bench.driver.run()
    assert (done.driver.progress.state, stopped.driver.progress.state) == (RunState.COMPLETE, RunState.STOPPED)
    assert (done.membership.left, stopped.membership.left) == (True, True)
