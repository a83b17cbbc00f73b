"""How much waits in input buffers: when partitions are paused, and when they go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milestones.common.kafka.consumers import Fetched
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.stream_thread.inputs import RESTED_MS, Inputs
from tests.milestones.fake_kafka import Log
from tests.milestones.fakes import IN, FakeClients, World, passing, put
from tests.milestones.stepped_workers import STAGES
from tests.milestones.stream_thread.feeding import LEFT, RIGHT, Fed, full, two

OTHER = TopicPartition("in", 1)


def test_a_partition_pauses_at_twice_its_buffer_and_goes_on_at_half_of_that() -> None:
    f = full(20, buffered_records_per_partition=10)
    assert [f.paused(), f.paused(after=9), f.paused(after=1)] == [{IN}, {IN}, set()]


def test_a_partition_pauses_when_it_holds_all_bytes_and_goes_on_when_half_of_what_was_lent_is_back() -> None:
    f = full(10, input_buffer_max_bytes=2_000)
    assert [f.paused(), f.paused(after=4), f.paused(after=2)] == [{IN}, {IN}, set()]


def test_the_bytes_of_the_instance_are_shared_by_its_threads() -> None:
    assert full(10, input_buffer_max_bytes=8_000, num_stream_threads=4).paused() == {IN}


def test_an_empty_partition_that_its_task_waits_for_is_fetched_although_the_bytes_are_used_up() -> None:
    f = Fed("left", "right", input_buffer_max_bytes=2_000, max_poll_records=1)
    f.world.logs[LEFT].add("x" * 5_000, timestamp=2_000)
    f.world.logs[RIGHT].add("y", "z")
    f.start(0, 0)
    f.inputs.fetch(0)
    assert f.paused() == {LEFT}
    assert f.task.process(10, 0) == 1
    assert f.paused() == {LEFT}
    f.inputs.fetch(0)
    assert f.task.process(10, 0) == 2


def beside(quiet: int) -> Fed:
    """Partition 0 with 20 records, more than the bytes of the thread; partition 1 with so many."""
    f = Fed(input_buffer_max_bytes=4_000)
    f.inputs.start(f.world.task(1), {OTHER: OffsetAndMetadata(0)})
    put(f.world, 0, *["x"] * 20)
    put(f.world, 1, *["y"] * quiet)
    f.start(0)
    f.inputs.fetch(0)
    return f


def test_a_partition_with_less_than_its_share_goes_on_while_another_has_used_up_the_bytes() -> None:
    assert beside(quiet=2).paused() == {IN}


def test_partitions_with_more_than_their_shares_pause_and_each_goes_on_below_half_of_it() -> None:
    f = beside(quiet=10)
    assert f.paused() == {IN, OTHER}
    other = f.inputs._tasks[OTHER]
    other.initialise()
    other.process(8, 0)
    assert f.paused() == {IN, OTHER}
    other.process(1, 0)
    assert f.paused() == {IN}


@pytest.mark.parametrize("stage", STAGES)
def test_a_record_larger_than_all_buffers_is_processed_beside_sixty_four_other_partitions(stage: str) -> None:
    r = STAGES[stage](passing(), input_buffer_max_bytes=1_000).run(*range(65))
    for partition in range(65):
        put(r.world, partition, "x" * (5_000 if partition == 0 else 10), "y" * 10, "z" * 2_000)
    r.step(300, ms=10)
    assert r.loop._processing.processed == 3 * 65


def batch(partition: TopicPartition, first: int, count: int) -> Fetched:
    """So many records, as the client gives them in one call."""
    log = Log(partition, first)
    log.add(*["x"] * count)
    return Fetched(records={partition: [message for message in log.entries if message is not None]})


def two_partitions() -> Fed:
    f = Fed(max_poll_records=2)
    f.inputs.start(f.world.task(1), {OTHER: OffsetAndMetadata(0)})
    f.start(0)
    return f


def behind(f: Fed) -> Fed:
    """A record of a partition without records lies behind prefetched ones of another, whose first ones wait already."""
    f.world.consumer.next.extend([batch(IN, 0, 2), batch(IN, 2, 2), batch(IN, 4, 2), batch(OTHER, 0, 1)])
    f.inputs.fetch(0)
    f.inputs.throttle()
    assert f.task.input.waiting() == 2
    return f


def test_a_record_that_lies_behind_prefetched_ones_of_a_partition_whose_input_waits_is_fetched_at_once() -> None:
    f = behind(two_partitions())
    f.world.clock.advance(RESTED_MS)
    assert f.inputs.starving
    f.inputs.fetch(0)
    assert f.inputs._tasks[OTHER].input.waiting() == 1
    assert f.task.input.waiting() == 6


def test_as_long_as_fetches_follow_one_another_the_client_brings_each_partition_its_records_in_turn() -> None:
    f = behind(two_partitions())
    f.world.clock.advance(RESTED_MS - 1)
    assert not f.inputs.starving
    f.inputs.fetch(0)
    assert f.task.input.waiting() == 4


def test_one_fetch_is_enough_when_all_that_came_before_was_worked_off() -> None:
    f = two_partitions()
    f.world.consumer.next.extend([batch(IN, 0, 2), batch(IN, 2, 2), batch(OTHER, 0, 1)])
    f.inputs.throttle()
    f.inputs.fetch(0)
    assert f.task.input.waiting() == 2
    f.task.process(2, 0)
    f.inputs.throttle()
    f.world.clock.advance(RESTED_MS)
    f.inputs.fetch(0)
    assert f.task.input.waiting() == 2


def test_a_partition_that_fills_up_while_the_queue_is_drained_is_paused_on_the_way() -> None:
    f = Fed(max_poll_records=2, buffered_records_per_partition=3)
    f.inputs.start(f.world.task(1), {OTHER: OffsetAndMetadata(0)})
    f.start(0)
    put(f.world, 0, *["x"] * 100)
    f.inputs.fetch(0)
    f.inputs.throttle()
    f.world.clock.advance(RESTED_MS)
    f.inputs.fetch(0)
    assert f.task.input.waiting() == 6
    assert f.world.consumer.paused == {IN}


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


def test_what_waits_for_a_paused_task_isnt_dropped_while_it_isnt_known_where_its_partition_goes_on() -> None:
    f = Fed()
    f.start(0)
    put(f.world, 0, *"abcdefgh")
    f.inputs.fetch(0)
    f.world.requests.holds = True
    f.world.consumer.next.append(Fetched(out_of_range=[IN]))
    f.inputs.fetch(0)  # Kafka has deleted them all meanwhile
    f.inputs.pause(frozenset({0}))
    f.inputs.throttle()
    assert f.task.input.waiting() == 8, "there is no other copy of them"
    f.inputs.pause(frozenset())
    f.world.requests.holds = False
    f.world.requests.answer()
    f.inputs.run_once()
    f.inputs.throttle()
    assert f.task.process(100, 0) == 8
