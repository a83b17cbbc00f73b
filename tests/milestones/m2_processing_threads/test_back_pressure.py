"""How much is fetched beside processing threads: enough, no more, and what a task waits for in any case."""

from __future__ import annotations

from milestones.common.kafka.consumers import Fetched
from milestones.common.records import TopicPartition
from milestones.m2_processing_threads.processing import ENOUGH
from milestones.stream_thread.inputs import RESTED_MS
from tests.milestones.fakes import IN, A, B, counting, put
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing, running


def test_nothing_more_is_fetched_while_every_task_has_enough_and_no_partition_is_paused_for_that() -> None:
    r = running(0, max_poll_records=500)
    r.world.workers.stuck = True
    put(r.world, 0, *["v"] * 3 * ENOUGH)
    fetches = []
    for _ in range(ENOUGH // 500 + 20):
        r.step()
        fetches.append(len(r.world.consumer.waits))
    assert fetches[-1] == fetches[-10]
    assert ENOUGH <= r.world.state.tasks[A].input.waiting() < 2 * ENOUGH
    assert r.world.consumer.paused == set()


def test_while_a_partition_has_no_records_fetches_go_on_however_much_waits_in_others() -> None:
    r = running(0, 1, max_poll_records=500)
    r.world.workers.stuck = True
    put(r.world, 0, *["v"] * 2 * ENOUGH)
    r.step(2 * ENOUGH // 500 + 20)
    put(r.world, 1, "v")
    r.step(2, ms=RESTED_MS)
    assert r.world.state.tasks[B].input.waiting() == 1


def test_records_that_wait_for_those_of_another_partition_keep_nothing_from_being_fetched() -> None:
    r = RunningProcessing(ProcessingWorld(counting(topics=("in", "other")))).run(0)
    other, consumer = TopicPartition("other", 0), r.world.consumer
    put(r.world, 0, "1", topic="other")
    many, log = [r.world.logs[IN].message(n, b"k", b"v", 2_000) for n in range(2 * ENOUGH)], r.world.logs[other]
    consumer.next.append(Fetched({IN: many, other: log.entries[:1]}))
    consumer.positions[other] = 1  # its end isn't known
    r.step(5)
    task = r.world.state.tasks[A]
    assert task.input.position(other) == 1
    fetches = len(consumer.waits)
    r.step(5)
    assert len(consumer.waits) == fetches + 5


def test_what_fifty_tasks_buffer_that_wait_for_another_partition_is_bounded_by_partition() -> None:
    world = ProcessingWorld(counting(topics=("in", "other")), buffered_records_per_partition=20, max_poll_records=10)
    r, consumer = RunningProcessing(world).run(*range(50)), world.consumer
    others = [TopicPartition("other", number) for number in range(50)]
    for other in others:
        put(world, other.partition, "1", topic="other")
    consumer.next.append(Fetched({other: world.logs[other].entries[:] for other in others}))
    consumer.positions.update(dict.fromkeys(others, 1))
    consumer.reported.update(others)  # their ends aren't known
    r.step(60)
    for number in range(50):
        put(world, number, *["v"] * 200)
    r.step(60)
    waiting = [task.input.waiting_of(TopicPartition("in", id.partition)) for id, task in world.state.tasks.items()]
    assert len(waiting) == 50
    assert 40 <= min(waiting) <= max(waiting) <= 50
    assert {partition.topic for partition in consumer.paused} == {"in"}
