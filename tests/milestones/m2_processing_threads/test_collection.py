"""Outputs wait in their task's buffer until the stream thread can send them."""

from __future__ import annotations

from typing import Any

from milestones.common.records import output_of
from milestones.common.steps import to_the_end
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.parts import CloseMode
from tests.milestones.fake_kafka import FakeProducer
from tests.milestones.fakes import World, counting, put
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing


class Collecting:
    """Two tasks with outputs, and a producer."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(counting(), settings)
        self.producer: FakeProducer = self.world.producer
        self.collection = BufferedCollection(self.world.context, self.world.clients)  # type: ignore[arg-type]
        self.tasks = [self.world.task(partition) for partition in (0, 1)]
        for task in self.tasks:
            task.start(dict.fromkeys(task.partitions, 0), {})

    def process(self, *values: str, of: int = 0) -> None:
        (at,) = self.tasks[of].partitions
        put(self.world, of, *values)
        self.tasks[of].input.add(at, [m for m in self.world.logs[at].entries[-len(values) :] if m is not None])
        self.tasks[of].process(100, 0)

    def collect(self) -> bool:
        return self.collection.collect(self.tasks)

    def sent(self) -> list[tuple[str, bytes | None]]:
        return [(output.topic, output.value) for _, output in self.producer.sent]


def test_what_the_client_has_no_room_for_waits_in_its_order() -> None:
    c = Collecting()
    c.process("a", "b", "c")
    everything = [output_of(output)[:4] for output in c.tasks[0].take_outputs()]
    c.tasks[0].roll_back()
    c.tasks[0].initialise()
    c.process("a", "b", "c")
    c.producer.room = 3
    assert c.collect()
    assert c.tasks[0].output_bytes() > 0
    c.process("d")
    c.producer.room = None
    c.collect()
    assert c.tasks[0].output_bytes() == 0
    assert [output[:4] for _, output in c.producer.sent][:6] == everything


def test_what_waits_is_part_of_the_commit() -> None:
    c = Collecting()
    c.process("a", "b")
    c.producer.room = 1
    c.collect()
    pending = c.tasks[0].freeze()
    c.producer.room = None
    assert to_the_end(c.collection.send({c.tasks[0]: pending}, 1_000))
    assert len(c.producer.sent) == 4


def test_under_exactly_once_outputs_of_a_task_that_cant_be_committed_yet_are_in_no_transaction() -> None:
    c = Collecting()
    c.process("a")
    pending = c.tasks[0].freeze()
    assert to_the_end(c.collection.send({c.tasks[0]: pending}, 1_000))
    c.tasks[0].confirmed(pending, {"counts": 1})
    before = len(c.producer.sent)
    c.process("b")
    c.process("c", of=1)
    c.collect()
    assert {task.partition for task, _ in c.producer.sent[before:]} == {1}
    c.tasks[0].apply()
    c.collect()
    assert {task.partition for task, _ in c.producer.sent[before:]} == {0, 1}


def test_under_at_least_once_they_are_sent_at_once() -> None:
    c = Collecting(processing_guarantee="at_least_once")
    c.process("a")
    c.tasks[0].confirmed(c.tasks[0].freeze(), {"counts": 1})
    c.process("b")
    assert c.collect()


def test_a_client_that_takes_nothing_stops_only_the_tasks_whose_buffers_are_full() -> None:
    world = ProcessingWorld(output_buffer_max_bytes=4_000, commit_interval_ms=10_000)
    r = RunningProcessing(world)
    world.clients.producer = FakeProducer()
    world.clients.producer.room = 0
    r.run(0, 1)
    for number in range(100):
        put(world, 0, f"v{number}")
    r.step(50, ms=10)
    r.feed("x", partition=1, steps=50, ms=10)
    full, other = (world.state.tasks[id] for id in sorted(r.tasks.processing))
    assert 0 < full.input.waiting() < 100
    assert other.input.waiting() == 0
    world.clients.producer.room = None
    r.step(200, ms=10)
    assert full.input.waiting() == 0


def test_what_a_task_has_made_since_its_last_commit_is_dropped_when_it_is_taken_away() -> None:
    r = RunningProcessing(ProcessingWorld(commit_interval_ms=10_000))
    r.run(0)
    task = r.world.state.tasks[next(iter(r.tasks.processing))]
    r.feed("a", steps=3)
    r.loop._processing.remove(task.id, CloseMode.SUSPEND)
    assert task.take_outputs() == []
