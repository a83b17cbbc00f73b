"""The driver of a run, step by step, while all goes well, or nearly."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from milestones import SourceTopicError
from milestones.common.records import TaskId, TopicPartition
from milestones.pipeline.driving.driver import PATIENCE_MS, Pace
from milestones.pipeline.hosting.ranges import RangeEnd
from tests.pipeline.driver_bench import BETWEEN, FIRST, IN, SECOND, Bench


def test_a_batch_goes_down_the_levels_and_ends_when_nothing_is_left(batch: Bench) -> None:
    assert not batch.step()
    assert [range_.task for range_ in batch.ranges] == [FIRST]
    assert batch.ranges[0].ends == {IN: 10}
    assert not batch.finish(produces=7)
    assert [range_.task for range_ in batch.ranges] == [SECOND]
    assert batch.ranges[0].ends == {BETWEEN: 7}
    assert not batch.finish()
    assert batch.step()
    progress = batch.driver.progress
    assert (progress.jobs, progress.records, progress.lag, progress.elsewhere) == (2, 17, 0, 1)
    assert batch.kafka.purges == 2


def test_what_tasks_say_is_gone_of_their_changelogs_is_trimmed_at_the_end_of_a_pass(batch: Bench) -> None:
    log, other = TopicPartition("log", 0), TopicPartition("other", 0)
    batch.step()
    batch.finish(produces=7, gone={log: 5})
    batch.finish(gone={other: 6})
    assert batch.step()
    assert batch.kafka.gone == {log: 5, other: 6}


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


def test_what_tasks_write_that_the_run_is_given_later_belongs_to_the_batch_too(batch: Bench) -> None:
    batch.kafka.written[BETWEEN] = 5
    batch.membership.tasks = {SECOND: (BETWEEN,)}
    batch.step()
    batch.finish()  # where the second level ends is settled now
    batch.membership.tasks = {FIRST: (IN,), SECOND: (BETWEEN,)}
    assert not batch.step()
    batch.finish(produces=7)
    assert batch.ranges[0].ends == {BETWEEN: 12}


def test_a_batch_with_nothing_to_do_begins_no_job() -> None:
    bench = Bench(Pace(None))
    assert bench.step()
    assert bench.spark.orders == []


def test_a_batch_waits_for_tasks_that_it_was_promised(batch: Bench) -> None:
    batch.kafka.offsets[IN] = 10
    batch.membership.promised = frozenset({TaskId(0, 1)})
    assert not batch.step()
    batch.membership.promised = frozenset()
    assert batch.step()


def test_what_a_generation_took_is_planned_again_under_the_next(batch: Bench) -> None:
    batch.step()
    batch.work(end=RangeEnd.STALE)
    batch.membership.wanted = "somebody came"
    batch.step()
    assert batch.membership.claimed == [frozenset({FIRST, SECOND})]
    assert len(batch.spark.orders) == 1
    batch.membership.assign(2)
    batch.step()
    batch.step()
    assert [order.ranges[0].lent.generation for order in batch.spark.orders] == [1, 2]


def test_a_rebalance_waits_a_little_for_the_job_then_goes_on_without_it(batch: Bench) -> None:
    batch.step()
    batch.membership.wanted = "somebody came"
    batch.step()
    batch.step(PATIENCE_MS - 1)
    assert batch.membership.claimed == []
    batch.step(1)
    assert batch.membership.claimed == [frozenset({FIRST, SECOND})]


def test_a_task_that_is_worked_on_stays_claimed_though_it_was_given_away(batch: Bench) -> None:
    batch.step()
    batch.membership.tasks = {}
    batch.membership.wanted = "again"
    batch.step()
    batch.step(PATIENCE_MS)
    assert batch.membership.claimed == [frozenset({FIRST})]


def test_micro_batches_keep_their_interval() -> None:
    bench = Bench(Pace(1_000))
    assert not bench.step()
    bench.finish()  # each task runs for a first time
    bench.finish()
    bench.kafka.written[IN] = 5
    bench.step(500)
    assert len(bench.spark.orders) == 2
    bench.step(500)
    assert bench.ranges[0].ends == {IN: 5}


def test_a_task_whose_punctuation_is_due_runs_without_input() -> None:
    bench = Bench(Pace(1_000))
    bench.step()
    bench.finish(schedule=({}, {1: bench.clock.wall_ms() + 3_000}), due_ms=bench.clock.wall_ms() + 3_000)
    bench.work()
    for _ in range(3):
        bench.step(1_000)
    bench.step()
    assert len(bench.spark.orders) == 3
    assert bench.ranges[0].task == FIRST
    assert bench.ranges[0].schedule is not None


def test_a_retry_that_finds_all_committed_changes_nothing_about_when_punctuations_are_due() -> None:
    bench = Bench(Pace(1_000))
    due_ms = bench.clock.wall_ms() + 3_000
    bench.step()
    bench.finish(schedule=({}, {1: due_ms}), due_ms=due_ms)
    bench.finish()
    bench.kafka.written[IN] = 5
    bench.step(1_000)
    bench.finish(schedule=None)
    bench.step(1_000)
    assert len(bench.spark.orders) == 3
    bench.step(1_000)
    assert len(bench.spark.orders) == 4
    assert (bench.ranges[0].task, bench.ranges[0].schedule) == (FIRST, ({}, {1: due_ms}))


def test_a_task_of_which_a_retry_has_told_nothing_yet_runs_for_a_first_time() -> None:
    bench = Bench(Pace(1_000))
    bench.step()
    bench.finish(schedule=None)
    bench.finish()
    bench.step(1_000)
    assert [range_.task for range_ in bench.ranges] == [FIRST]


def test_kafka_that_cant_answer_is_asked_again_and_the_level_isnt_passed_over(batch: Bench) -> None:
    batch.kafka.error = KafkaError._TRANSPORT
    assert not batch.step()
    batch.kafka.error = None
    assert not batch.step(500)
    assert batch.spark.orders == []
    batch.step(500)
    assert batch.ranges[0].task == FIRST


def test_a_source_topic_that_has_changed_ends_the_run_and_a_new_one_is_the_groups_to_assign() -> None:
    bench = Bench(Pace(1_000))
    bench.kafka.news = frozenset({"new"})
    bench.step()
    assert bench.membership.asked == ["new source topics: new"]
    bench.kafka.news = SourceTopicError("in has more partitions")
    bench.finish()
    bench.finish()
    with pytest.raises(SourceTopicError):
        bench.step(5_000)
