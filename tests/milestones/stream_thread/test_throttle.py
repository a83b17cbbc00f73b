"""How much waits in input buffers: when partitions are paused, and when they go on."""

from __future__ import annotations

from dataclasses import replace

from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.stream_thread.inputs import Inputs
from tests.milestones.fakes import IN, FakeClients, World, passing, put
from tests.milestones.stream_thread.feeding import LEFT, RIGHT, Fed, full, two


def test_a_partition_pauses_at_twice_its_buffer_and_resumes_at_half() -> None:
    f = full(20, buffered_records_per_partition=10)
    assert [f.paused(), f.paused(after=14), f.paused(after=1)] == [{IN}, {IN}, set()]


def test_a_partition_pauses_beyond_the_stock_that_is_kept_anyway() -> None:
    f = full(20, buffered_records_per_partition=5)
    f.inputs.throttle(high_watermark=11)
    assert f.world.consumer.paused == set()
    f.inputs.throttle(high_watermark=10)
    assert f.world.consumer.paused == {IN}


def test_all_partitions_with_records_pause_when_the_bytes_of_the_thread_are_used_up() -> None:
    f = full(10, input_buffer_max_bytes=2_000)
    assert [f.paused(), f.paused(after=6), f.paused(after=1)] == [{IN}, {IN}, set()]


def test_the_bytes_of_the_instance_are_shared_by_its_threads() -> None:
    assert full(10, input_buffer_max_bytes=8_000, num_stream_threads=4).paused() == {IN}


def test_an_empty_partition_that_its_task_waits_for_is_fetched_although_the_bytes_are_used_up() -> None:
    f = Fed("left", "right", input_buffer_max_bytes=2_000, max_poll_records=1)
    f.world.logs[LEFT].add("x" * 5_000, timestamp=2_000)
    f.world.logs[RIGHT].add("y", "z")
    f.start(0, 0)
    f.inputs.fetch(0)
    assert f.paused() == {LEFT, RIGHT}
    assert f.task.process(10, 0) == 1
    assert f.paused() == {LEFT}
    f.inputs.fetch(0)
    assert f.task.process(10, 0) == 2


def test_nothing_more_is_fetched_for_a_paused_task_and_others_have_all_the_room() -> None:
    f = Fed(topology=two(), input_buffer_max_bytes=2_000)
    other, source = f.world.task(subtopology=1), TopicPartition("other", 0)
    f.inputs.start(other, {source: OffsetAndMetadata(0)})
    put(f.world, 0, *["x"] * 10, topic="other")
    f.start(0)
    f.inputs.fetch(0)
    f.inputs.pause(frozenset({1}))
    assert f.paused() == {source}
    put(f.world, 0, "y")
    put(f.world, 0, *["x"] * 100, topic="other")
    for _ in range(3):
        f.inputs.fetch(0)
        f.inputs.throttle()
    assert (other.input.waiting(), f.task.input.waiting()) == (1, 1)
    assert f.world.consumer.paused == {source}
    f.inputs.pause(frozenset())
    other.process(10, 0)
    assert f.paused() == set()


def test_the_bytes_are_shared_by_as_many_threads_as_there_are_now() -> None:
    f = full(10, input_buffer_max_bytes=8_000)
    assert f.paused() == set()
    others = [f.world.budget.join() for _ in range(3)]
    assert f.paused() == {IN}
    for other in others:
        other.leave()
    assert f.paused(after=2) == set()


def test_fifty_tasks_of_two_threads_buffer_no_more_than_the_instance_may_but_for_a_fetch_of_each_partition() -> None:
    world = World(passing(), {"input_buffer_max_bytes": 200_000, "max_poll_records": 2})
    threads = [replace(world.context, memory=world.context.memory), replace(world.context, memory=world.budget.join())]
    inputs = [Inputs(context, FakeClients(world.logs, transactional=False, clock=world.clock)) for context in threads]  # type: ignore[arg-type]
    for number in range(50):
        put(world, number, *["x" * 100] * 400)
        inputs[number % 2].start(world.task(number), {TopicPartition("in", number): OffsetAndMetadata(0)})
    for _ in range(100):
        for one in inputs:
            one.fetch(0)
            one.throttle()
        assert sum(one.buffered_bytes for one in inputs) <= 200_000 + 50 * 2 * 500
    assert sum(one.buffered_bytes for one in inputs) > 100_000


def test_a_paused_task_keeps_one_record_and_gets_the_others_again_when_it_goes_on() -> None:
    f = Fed()
    f.start(0)
    put(f.world, 0, *"abcdefgh")
    f.inputs.fetch(0)
    full = f.task.input.bytes()
    f.inputs.pause(frozenset({0}))
    f.inputs.throttle()
    assert (f.task.input.waiting(), f.inputs.buffered_bytes) == (1, f.task.input.bytes())
    assert f.task.input.bytes() < full // 4
    assert (f.world.consumer.positions, f.world.consumer.paused) == ({IN: 1}, {IN})
    f.inputs.pause(frozenset())
    f.inputs.throttle()
    f.inputs.fetch(0)
    assert f.task.process(100, 0) == 8
    assert f.task.input.position(IN) == 8
