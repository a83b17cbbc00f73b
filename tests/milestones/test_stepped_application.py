"""A stepped application: the test makes the turns of a real loop, plants the faults, and sees what Kafka has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    ThreadState,
    TopicPartition,
    TopologyError,
    stores,
)
from milestones.common.testing.faults import Fault, plant, reach
from milestones.testing import FAULT_POINTS, SteppedApplication, TopologyTestDriver

STAGES = ["baseline", "fencing_tolerance"]
POINTS = [
    point for point in FAULT_POINTS if point.startswith(("commit.", "restore.")) or point in (
        "rebalance.before-join", "rebalance.assigned"
    )
]  # fmt: skip
"""The fault points that an instance without other threads reaches between its start and its first commit."""


class Counting(Processor[str, str, str, int]):
    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.counts: KeyValueStore[str, int] = context.get_state_store("counts")

    def process(self, record: Record[str, str]) -> None:
        if record.value == "poison":
            raise RuntimeError("user code fails")
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count))


def counting(*, persistent: bool = True) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("counts", key=str, value=int, persistent=persistent))
    builder.stream("in", key=str, value=str).process(Counting, "counts").to("out", key=str, value=int)
    return builder


def counter(**settings: Any) -> SteppedApplication:
    given = {"processing_guarantee": "exactly_once_v2", "application_id": "app", **settings}
    return SteppedApplication(counting(), **given)


def put(app: SteppedApplication, *values: str, key: str = "k") -> None:
    topic = app.create_input_topic("in", key=str, value=str)
    for value in values:
        topic.pipe(key, value)


def outputs(app: SteppedApplication) -> list[tuple[str, int]]:
    return app.create_output_topic("out", key=str, value=int).read_key_values()


@pytest.fixture(params=STAGES)
def app(request: pytest.FixtureRequest) -> Iterator[SteppedApplication]:
    with counter(milestones=request.param) as made:
        yield made


def test_a_record_goes_through_and_its_output_is_visible_once_the_commit_is_made(app: SteppedApplication) -> None:
    put(app, "a")
    while "send" not in app.calls:
        app.step()
    assert outputs(app) == []
    app.run_for(200)
    assert outputs(app) == [("k", 1)]
    assert app.committed() == {TopicPartition("in", 0): 1}
    assert app.state is ThreadState.RUNNING


def test_the_calls_show_how_the_stage_commits(app: SteppedApplication) -> None:
    put(app, "a")
    app.run_for(500)
    assert app.calls == ["begin", "send", "flush", "send_offsets", "commit"]


def test_at_least_once_has_no_transaction_and_the_member_commits() -> None:
    with counter(processing_guarantee="at_least_once", commit_interval_ms=100) as app:
        put(app, "a")
        app.run_for(500)
        assert app.calls == ["send", "flush", "commit_offsets"]
        assert outputs(app) == [("k", 1)]
        assert app.committed() == {TopicPartition("in", 0): 1}


def test_no_turn_is_made_and_no_time_passes_without_a_call(app: SteppedApplication) -> None:
    put(app, "a")
    now_ms = app.clock.monotonic_ms()
    assert (app.calls, app.state) == ([], ThreadState.CREATED)
    app.step(3)
    assert app.clock.monotonic_ms() == now_ms
    app.step(2, ms=7)
    assert app.clock.monotonic_ms() == now_ms + 14


@pytest.mark.parametrize("keep_state", [True, False], ids=["with its disk", "without a disk"])
@pytest.mark.parametrize("point", POINTS)
def test_each_record_is_counted_once_wherever_the_instance_crashes(
    app: SteppedApplication, point: str, keep_state: bool
) -> None:
    put(app, "a", "b")
    app.run_for(500)
    app.restart(keep_state=False)
    app.crash_at(point)
    put(app, "c")
    app.run_for(1_000)
    assert app.crashed
    assert app.state is ThreadState.DEAD
    app.restart(keep_state=keep_state)
    put(app, "d")
    app.run_for(1_000)
    assert outputs(app) == [("k", 1), ("k", 2), ("k", 3), ("k", 4)]
    assert app.committed() == {TopicPartition("in", 0): 4}


def test_a_crash_before_the_commit_leaves_neither_outputs_nor_offsets(app: SteppedApplication) -> None:
    app.crash_at("commit.after-offsets")
    put(app, "a")
    app.run_for(1_000)
    assert app.crashed
    assert (outputs(app), app.committed()) == ([], {})


def test_a_crash_after_the_commit_leaves_both(app: SteppedApplication) -> None:
    app.crash_at("commit.after-commit")
    put(app, "a")
    app.run_for(1_000)
    assert app.crashed
    assert (outputs(app), app.committed()) == ([("k", 1)], {TopicPartition("in", 0): 1})


def test_a_crash_between_two_turns_loses_what_is_not_committed(app: SteppedApplication) -> None:
    put(app, "a")
    while "send" not in app.calls:
        app.step()
    app.crash()
    assert outputs(app) == []
    app.restart()
    app.run_for(1_000)
    assert outputs(app) == [("k", 1)]


def test_at_least_once_a_crash_before_the_commit_repeats_outputs() -> None:
    with counter(processing_guarantee="at_least_once", commit_interval_ms=100) as app:
        app.crash_at("commit.after-flush")
        put(app, "a")
        app.run_for(1_000)
        app.restart(keep_state=False)
        app.run_for(1_000)
        assert [key for key, _ in outputs(app)] == ["k", "k"]


def test_a_store_in_memory_is_restored_from_its_changelog_after_a_crash() -> None:
    builder = counting(persistent=False)
    with SteppedApplication(builder, processing_guarantee="exactly_once_v2") as app:
        put(app, "a")
        app.run_for(500)
        app.restart()
        put(app, "b")
        app.run_for(500)
        assert outputs(app) == [("k", 1), ("k", 2)]


def test_a_fault_point_counts_from_the_call_on_and_each_crash_disarms_it(app: SteppedApplication) -> None:
    app.crash_at("commit.after-flush", nth=2)
    put(app, "a")
    app.run_for(500)
    assert not app.crashed
    put(app, "b")
    app.run_for(500)
    assert app.crashed
    app.restart()
    app.run_for(1_000)
    assert not app.crashed
    assert outputs(app) == [("k", 1), ("k", 2)]


@pytest.mark.parametrize("error", ["fenced", "timed out", "old generation"])
@pytest.mark.parametrize("call", ["begin", "send", "flush", "send_offsets", "commit"])
def test_an_error_of_a_call_costs_no_record(app: SteppedApplication, call: str, error: str) -> None:
    app.fail_next(call, error)
    put(app, "a", "b")
    app.run_for(5_000)
    assert app.calls.count(call) > 1
    assert ("new producer" in app.calls) or error != "fenced"
    assert outputs(app) == [("k", 1), ("k", 2)]
    assert app.committed() == {TopicPartition("in", 0): 2}


def test_planted_errors_come_one_after_the_other_and_an_abort_can_fail_too(app: SteppedApplication) -> None:
    app.fail_next("commit", "old generation")
    app.fail_next("abort", "fenced")
    app.fail_next("commit", "old generation")
    put(app, "a")
    app.run_for(5_000)
    ends = [call for call in app.calls if call in ("commit", "abort")]
    assert (ends[:3], ends[-1], ends.count("commit")) == (["commit", "abort", "commit"], "commit", 3)
    assert outputs(app) == [("k", 1)]


def test_a_fenced_producer_is_of_no_more_use(app: SteppedApplication) -> None:
    app.fail_next("commit", "fenced")
    put(app, "a")
    app.run_for(5_000)
    after = app.calls[app.calls.index("commit") + 1 :]
    assert after[: after.index("new producer")] == []


def test_the_baseline_rejoins_after_a_fence_and_fencing_tolerance_does_not() -> None:
    seen = {}
    for stage in STAGES:
        with counter(milestones=stage) as app:
            app.run_for(100)
            app.fail_next("commit", "fenced")
            put(app, "a")
            seen[stage] = set()
            for _ in range(300):
                app.step(ms=10)
                seen[stage].add(app.state)
    assert ThreadState.PARTITIONS_ASSIGNED in seen["baseline"]
    assert seen["fencing_tolerance"] == {ThreadState.RUNNING}


def test_an_error_of_user_code_ends_the_thread_and_a_restart_meets_it_once_more(app: SteppedApplication) -> None:
    put(app, "poison")
    for _ in range(2):
        with pytest.raises(Exception, match="user code fails"):
            app.run_for(500)
        assert app.state is ThreadState.DEAD
        assert not app.crashed
        with pytest.raises(RuntimeError, match="the instance has ended"):
            app.step()
        app.restart()


@pytest.mark.parametrize(("ms", "passed_ms"), [(0, 0), (1, 10), (10, 10), (15, 20), (100, 100)])
def test_time_passes_in_whole_turns(app: SteppedApplication, ms: int, passed_ms: int) -> None:
    app.run_for(ms)
    assert app.clock.monotonic_ms() == passed_ms


def test_a_crashed_instance_is_not_run_before_it_is_restarted(app: SteppedApplication) -> None:
    app.crash()
    for run in (app.step, lambda: app.run_for(100)):
        with pytest.raises(RuntimeError, match=r"the instance has crashed: call restart\(\)"):
            run()
    assert app.clock.monotonic_ms() == 0
    app.restart()
    app.run_for(100)


def test_keys_choose_the_partition_and_each_partition_has_a_task() -> None:
    with counter(partitions=3) as app:
        for key in "abcdefgh":
            put(app, "x", "y", key=key)
        app.run_for(500)
        found = outputs(app)
        assert sorted(found) == sorted((key, count) for key in "abcdefgh" for count in (1, 2))
        committed = app.committed()
        assert (len(committed), sum(committed.values())) == (3, 16)


def test_a_repartition_topic_is_written_read_and_purged() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=str, value=str)
        .group_by(lambda _, value: value, key=str, value=str)
        .count("counts")
        .to_stream()
        .to("out", key=str, value=int)
    )
    with SteppedApplication(builder, partitions=2, processing_guarantee="exactly_once_v2") as app:
        put(app, "x", "y", "x")
        app.run_for(2_000)
        app.restart(keep_state=False)
        put(app, "x")
        app.run_for(2_000)
        found = outputs(app)
    assert sorted(found) == [("x", 1), ("x", 2), ("x", 3), ("y", 1)]
    assert found.index(("x", 1)) < found.index(("x", 2)) < found.index(("x", 3))


def test_the_outputs_are_those_of_the_test_driver(app: SteppedApplication) -> None:
    put(app, "a", "b")
    put(app, "a", key="l")
    app.run_for(500)
    with TopologyTestDriver(counting(), application_id="app") as driver:
        topic = driver.create_input_topic("in", key=str, value=str)
        topic.pipe_all([("k", "a"), ("k", "b"), ("l", "a")])
        expected = driver.produced()
    bare = {topic: [(o.key, o.value) for o in found] for topic, found in app.produced().items()}
    assert bare == {topic: [(o.key, o.value) for o in found] for topic, found in expected.items()}


def test_a_clean_end_commits_what_was_processed() -> None:
    with counter() as app:
        app.run_for(100)
        put(app, "a")
        while "send" not in app.calls:
            app.step()
    assert outputs(app) == [("k", 1)]
    with pytest.raises(RuntimeError, match="the instance has ended"):
        app.step()
    app.close()


def test_an_error_of_the_test_leaves_no_commit_and_no_fault_behind() -> None:
    with pytest.raises(ZeroDivisionError):
        breaks_off(app := counter())
    assert app.crashed
    assert outputs(app) == []
    for point in FAULT_POINTS:
        reach(point)


def breaks_off(app: SteppedApplication) -> None:
    with app:
        app.crash_at("commit.after-flush")
        put(app, "a")
        while "send" not in app.calls:
            app.step()
        raise ZeroDivisionError


def test_the_faults_of_the_python_process_stay_when_those_of_the_application_go() -> None:
    reached: list[str] = []
    disarm = plant(Fault("commit.after-flush", "note", 1, performs=lambda _, point: reached.append(point)))
    with counter() as app:
        app.crash_at("rebalance.assigned")
        app.run_for(100)
        app.restart()
        put(app, "a")
        app.run_for(500)
        assert (app.crashed, reached) == (False, ["commit.after-flush"])
    disarm()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"milestones": "m3"}, "processing_threads, state_updater"),
        ({"milestones": "m6"}, "SteppedApplication has one thread"),
        ({"num_stream_threads": 2}, "num_stream_threads=2"),
    ],
)
def test_what_needs_more_threads_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        counter(**settings)


def test_global_stores_are_refused() -> None:
    builder = counting()
    builder.global_table("rows", key=str, value=str)
    with pytest.raises(TopologyError, match="SteppedApplication runs no global stores"):
        SteppedApplication(builder)


def test_unknown_words_are_refused_with_the_known_ones(app: SteppedApplication) -> None:
    with pytest.raises(ValueError, match="'produce' can fail, only begin, send"):
        app.fail_next("produce", "fenced")
    with pytest.raises(ValueError, match="'broken', only fenced, timed out"):
        app.fail_next("commit", "broken")
    with pytest.raises(ValueError, match="no fault point is called 'commit'"):
        app.crash_at("commit")
    with pytest.raises(ValueError, match="no source reads topic 'out'"):
        app.create_input_topic("out")
    with pytest.raises(TopologyError, match="SteppedApplication runs a Topology"):
        SteppedApplication(counting)  # type: ignore[arg-type]


def test_an_error_of_the_client_can_be_planted_as_it_is(app: SteppedApplication) -> None:
    dead = KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "made by a test", True)
    app.fail_next("flush", KafkaException(dead))
    put(app, "a")
    app.run_for(5_000)
    assert outputs(app) == [("k", 1)]

