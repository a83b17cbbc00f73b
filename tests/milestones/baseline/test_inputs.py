"""From the consumer into input buffers: where a task starts, what happens to lost offsets, back-pressure."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.baseline.inputs import Inputs
from milestones.common import serdes
from milestones.common.errors import KafkaUnreachableError, SourceTopicError, TimeoutExceededError
from milestones.common.kafka.consumers import Fetched
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.task.task import Task
from milestones.common.topology import Topology
from milestones.housekeeper import Bounds
from tests.milestones.fakes import World, passing, put

A = TaskId(0, 0)
IN, LEFT, RIGHT = TopicPartition("in", 0), TopicPartition("left", 0), TopicPartition("right", 0)


class Fed:
    """Inputs with task 0_0."""

    def __init__(self, *topics: str, topology: Any = None, **settings: Any) -> None:
        self.world = World(topology or passing(topics or ("in",)), settings)
        self.inputs = Inputs(self.world.context, self.world.clients)  # type: ignore[arg-type]
        self.task = self.world.task()

    def start(self, *committed: int) -> list[Task]:
        """At these committed offsets, partition by partition; what has started is initialised."""
        offsets = {p: OffsetAndMetadata(at) for p, at in zip(self.task.partitions, committed, strict=False)}
        self.inputs.start(self.task, offsets)
        self.inputs.run_once()
        started = self.inputs.take_started()
        for task in started:
            task.initialise()
        return started


def test_a_task_starts_at_its_committed_offsets() -> None:
    f = Fed()
    put(f.world, 0, *"abcdef")
    assert f.start(4) == [f.task]
    assert f.world.consumer.positions == {IN: 4}
    assert f.task.input.position(IN) == 4


@pytest.mark.parametrize(("policy", "position"), [("earliest", 2), ("latest", 6)])
def test_a_partition_without_a_committed_offset_starts_where_the_reset_policy_says(policy: str, position: int) -> None:
    f = Fed(auto_offset_reset=policy)
    put(f.world, 0, *"abcdef")
    f.world.logs[IN].cut_to(2)
    assert f.start() == [f.task]
    assert f.world.consumer.positions == {IN: position}


def test_the_reset_policy_none_ends_the_thread_with_what_to_do() -> None:
    f = Fed(auto_offset_reset="none")
    with pytest.raises(SourceTopicError, match=r"in-0 has no offset to start from \(none is committed\).*'none'"):
        f.start()


def test_a_source_of_the_topology_may_have_its_own_reset_policy() -> None:
    f = Fed(topology=passing(offset_reset="latest"), auto_offset_reset="none")
    put(f.world, 0, "a")
    f.start()
    assert f.world.consumer.positions == {IN: 1}


def test_only_the_partitions_without_a_committed_offset_are_reset() -> None:
    f = Fed("left", "right", auto_offset_reset="latest")
    f.world.logs[LEFT].add(*"abc")
    f.world.logs[RIGHT].add(*"abcde")
    f.start(1)
    assert f.world.consumer.positions == {LEFT: 1, RIGHT: 5}


def test_a_late_answer_about_other_partitions_does_not_start_a_task_that_waits() -> None:
    f = Fed("left", "right")
    f.world.requests.holds = True
    assert f.start(3) == []
    (question,) = f.world.requests.questions
    question.reply_to.try_put(Bounds(A, {LEFT: (7, 9)}))
    f.inputs.run_once()
    assert f.inputs.take_started() == []
    f.world.logs[LEFT].control(9)
    f.world.requests.answer()
    f.inputs.run_once()
    assert f.inputs.take_started() == [f.task]
    assert f.world.consumer.positions == {LEFT: 3, RIGHT: 0}


def test_bounds_that_cannot_be_learned_now_are_asked_for_again() -> None:
    f = Fed()
    f.world.requests.error = KafkaUnreachableError("no broker")
    assert f.start() == []
    f.world.requests.error = None
    f.inputs.run_once()
    f.inputs.run_once()
    assert f.inputs.take_started() == [f.task]


def test_bounds_that_cannot_be_learned_within_task_timeout_end_the_thread() -> None:
    f = Fed(task_timeout_ms=1_000)
    f.world.requests.error = KafkaUnreachableError("no broker")
    f.start()
    f.inputs.run_once()
    f.world.clock.advance(1_001)
    with pytest.raises(TimeoutExceededError, match=r"0_0.*task_timeout_ms: no broker"):
        f.inputs.run_once()


def test_an_error_about_a_task_that_was_stopped_since_is_nobodys_business() -> None:
    f = Fed()
    f.world.requests.holds, f.world.requests.error = True, KafkaUnreachableError("no broker")
    f.start()
    f.inputs.stop(f.task)
    f.world.requests.answer()
    f.inputs.run_once()
    assert f.world.requests.questions == []


def test_a_stopped_task_is_fed_no_more_and_is_not_handed_out_as_started() -> None:
    f = Fed()
    f.inputs.start(f.task, {IN: OffsetAndMetadata(0)})
    f.inputs.stop(f.task)
    assert f.inputs.take_started() == []
    assert f.world.consumer.assigned == frozenset()


def test_fetched_records_and_ends_go_to_their_task() -> None:
    f = Fed()
    put(f.world, 0, "a", "b")
    f.start(0)
    assert f.inputs.fetch(0)
    assert f.task.input.waiting() == 2
    assert not f.inputs.fetch(70)
    assert f.world.consumer.waits == [0, 70]


@pytest.mark.parametrize(("policy", "position"), [("earliest", 3), ("latest", 6)])
def test_an_offset_that_retention_took_is_skipped_as_the_reset_policy_says(
    policy: str, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    f = Fed(auto_offset_reset=policy)
    put(f.world, 0, *"abcdef")
    f.start(1)
    f.world.logs[IN].cut_to(3)
    f.inputs.fetch(0)
    f.inputs.run_once()
    assert f.world.consumer.positions == {IN: position}
    assert f.task.input.position(IN) == position
    assert "LOST" in caplog.text
    f.inputs.fetch(0)
    assert f.task.input.waiting() == 6 - position


def test_the_reset_policy_none_ends_the_thread_when_an_offset_is_lost() -> None:
    f = Fed(auto_offset_reset="none")
    put(f.world, 0, *"abcdef")
    f.start(1)
    f.world.logs[IN].cut_to(3)
    f.inputs.fetch(0)
    with pytest.raises(SourceTopicError, match=r"offset 1 is no longer in the log"):
        f.inputs.run_once()


def test_an_offset_that_is_in_the_log_after_all_is_read_on_from_and_nothing_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    f = Fed(auto_offset_reset="latest")
    put(f.world, 0, *"abcdef")
    f.start(1)
    f.world.consumer.next.append(Fetched(out_of_range=[IN]))
    f.inputs.fetch(0)
    f.inputs.run_once()
    assert f.world.consumer.positions == {IN: 1}
    assert "LOST" not in caplog.text


def test_a_lost_offset_of_a_task_that_was_stopped_meanwhile_changes_nothing() -> None:
    f = Fed()
    put(f.world, 0, *"abcdef")
    f.start(1)
    f.world.requests.holds = True
    f.world.logs[IN].cut_to(3)
    f.inputs.fetch(0)
    f.inputs.stop(f.task)
    f.world.requests.answer()
    f.inputs.run_once()
    assert f.world.consumer.assigned == frozenset()


def test_a_lost_offsets_bounds_are_asked_for_again_after_an_error() -> None:
    f = Fed()
    put(f.world, 0, *"abcdef")
    f.start(1)
    f.world.requests.error = KafkaUnreachableError("no broker")
    f.world.logs[IN].cut_to(3)
    f.inputs.fetch(0)
    f.inputs.run_once()
    f.world.requests.error = None
    f.inputs.run_once()
    f.inputs.run_once()
    assert f.world.consumer.positions == {IN: 3}


def test_a_deleted_source_topic_ends_the_thread_by_its_name() -> None:
    f = Fed()
    f.start(0)
    f.world.consumer.next.append(Fetched(gone=[IN]))
    with pytest.raises(SourceTopicError, match="in-0 is gone"):
        f.inputs.fetch(0)


def test_a_partition_pauses_at_twice_its_buffer_and_resumes_at_half() -> None:
    f = Fed(buffered_records_per_partition=10)
    put(f.world, 0, *["x"] * 20)
    f.start(0)
    f.inputs.fetch(0)
    f.inputs.throttle()
    assert f.world.consumer.paused == {IN}
    f.task.process(14, 0)
    f.inputs.throttle()
    assert f.world.consumer.paused == {IN}
    f.task.process(1, 0)
    f.inputs.throttle()
    assert f.world.consumer.paused == set()


def test_a_partition_pauses_beyond_the_stock_that_is_kept_anyway() -> None:
    f = Fed(buffered_records_per_partition=5)
    put(f.world, 0, *["x"] * 20)
    f.start(0)
    f.inputs.fetch(0)
    f.inputs.throttle(stock=11)
    assert f.world.consumer.paused == set()
    f.inputs.throttle(stock=10)
    assert f.world.consumer.paused == {IN}


def test_all_partitions_with_records_pause_when_the_bytes_of_the_thread_are_used_up() -> None:
    f = Fed(input_buffer_max_bytes=2_000)
    put(f.world, 0, *["x"] * 10)
    f.start(0)
    f.inputs.fetch(0)
    f.inputs.throttle()
    assert f.world.consumer.paused == {IN}
    f.task.process(6, 0)
    f.inputs.throttle()
    assert f.world.consumer.paused == {IN}
    f.task.process(1, 0)
    f.inputs.throttle()
    assert f.world.consumer.paused == set()


def test_the_bytes_of_the_instance_are_shared_by_its_threads() -> None:
    f = Fed(input_buffer_max_bytes=8_000, num_stream_threads=4)
    put(f.world, 0, *["x"] * 10)
    f.start(0)
    f.inputs.fetch(0)
    f.inputs.throttle()
    assert f.world.consumer.paused == {IN}


def test_an_empty_partition_that_its_task_waits_for_is_fetched_although_the_bytes_are_used_up() -> None:
    f = Fed("left", "right", input_buffer_max_bytes=2_000, max_poll_records=1)
    f.world.logs[LEFT].add("x" * 5_000, timestamp=2_000)
    f.world.logs[RIGHT].add("y", "z")
    f.start(0, 0)
    f.inputs.fetch(0)
    f.inputs.throttle()
    assert f.world.consumer.paused == {LEFT, RIGHT}
    assert f.task.process(10, 0) == 1
    f.inputs.throttle()
    assert f.world.consumer.paused == {LEFT}
    f.inputs.fetch(0)
    assert f.task.process(10, 0) == 2


def test_lags_count_what_is_not_processed_yet_buffered_records_included() -> None:
    f = Fed()
    put(f.world, 0, *"abcdef")
    f.start(1)
    f.inputs.fetch(0)
    assert f.inputs.lags() == {IN: 5}
    f.task.process(2, 0)
    assert f.inputs.lags() == {IN: 3}


def two() -> Topology:
    """Two sub-topologies: in -> out, other -> copies."""
    topology = passing()
    topology.add_source("others", "other", key=serdes.STRING, value=serdes.STRING)
    topology.add_sink("copies", "copies", "others", key=serdes.STRING, value=serdes.STRING)
    return topology


def test_nothing_more_is_fetched_for_a_paused_task_and_others_have_all_the_room() -> None:
    f = Fed(topology=two(), input_buffer_max_bytes=2_000)
    other, source = f.world.task(subtopology=1), TopicPartition("other", 0)
    f.inputs.start(other, {source: OffsetAndMetadata(0)})
    put(f.world, 0, *["x"] * 10, topic="other")
    f.start(0)
    f.inputs.fetch(0)
    f.inputs.pause(frozenset({1}))
    f.inputs.throttle()
    assert f.world.consumer.paused == {source}
    put(f.world, 0, "y")
    put(f.world, 0, *["x"] * 100, topic="other")
    for _ in range(3):
        f.inputs.fetch(0)
        f.inputs.throttle()
    assert (other.input.waiting(), f.task.input.waiting()) == (10, 1)
    assert f.world.consumer.paused == {source}
    f.inputs.pause(frozenset())
    other.process(10, 0)
    f.inputs.throttle()
    assert f.world.consumer.paused == set()


def test_the_bytes_are_shared_by_as_many_threads_as_there_are_now() -> None:
    f = Fed(input_buffer_max_bytes=8_000)
    put(f.world, 0, *["x"] * 10)
    f.start(0)
    f.inputs.fetch(0)
    f.inputs.throttle()
    assert f.world.consumer.paused == set()
    for _ in range(3):
        f.world.context.live.add()
    f.inputs.throttle()
    assert f.world.consumer.paused == {IN}
