"""A stream thread whose sub-topologies are paused (KIP-834)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from milestones.common.kafka.membership import Assigned, JoinNeeded
from milestones.common.records import OffsetAndMetadata, Record, TaskId, TopicPartition
from milestones.common.topology import Processor
from milestones.instance.thread_registry import ThreadRegistry
from milestones.stream_thread.thread import StreamThread
from tests.milestones.fakes import IN, NO_CLIENTS, Running, World, assignment, counting, put
from tests.milestones.stream_thread.feeding import Fed, two

ALL = frozenset({0})


def outputs(world: World) -> int:
    return [output.topic for _, output in world.producer.sent].count("out")


def test_what_was_done_before_a_pause_is_committed_soon_and_nothing_more_is_done_until_the_resume() -> None:
    world = World(settings={"processing_guarantee": "at_least_once", "commit_interval_ms": 30_000}).fed("a", "b")
    r = Running(world).run(0)
    r.step(2)
    assert world.member.commits == []
    world.context.thread_registry.pause(ALL)
    r.step()
    assert world.member.committed[IN].offset == 2
    r.feed("c", steps=20, ms=100)
    assert outputs(world) == 2
    world.context.thread_registry.resume(ALL)
    r.step(3)
    assert outputs(world) == 3


def test_an_idle_paused_thread_waits_for_input_as_long_as_any_other() -> None:
    r = Running(poll_ms=50).run(0)
    put(r.world, 0, *"abc")
    r.world.context.thread_registry.pause(ALL)
    r.step(4, ms=10)
    assert r.world.consumer.waits[-1] > 0


def test_a_paused_task_can_be_given_away_and_a_new_one_is_paused_too() -> None:
    world = World()
    put(world, 1, "b")
    r = Running(world).run(0)
    world.context.thread_registry.pause(ALL)
    put(world, 0, "a")
    r.rebalance(1, steps=10)
    assert r.tasks.owned == assignment(world, 1).active
    assert outputs(world) == 0


def test_a_thread_that_is_started_while_the_client_is_paused_is_paused_from_its_first_round() -> None:
    world = World().fed("a")
    thread_registry = ThreadRegistry(1)
    thread_registry.pause({0})
    thread = StreamThread(replace(world.context, thread_registry=thread_registry), world.parts, NO_CLIENTS)
    rounds = 0

    def poll() -> list[Any]:
        nonlocal rounds
        rounds += 1
        if rounds == 20:
            assert outputs(world) == 0
            thread_registry.resume({0})
        if rounds == 30:
            thread.stop(leave_group=True)
        return {1: [JoinNeeded("start")], 2: [Assigned(1, "m", assignment(world, 0))]}.get(rounds, [])

    world.member.poll = poll  # type: ignore[method-assign]
    thread.run()
    assert outputs(world) == 1


def test_what_a_paused_task_keeps_leaves_no_partition_of_another_one_paused() -> None:
    f = Fed(topology=two(), input_buffer_max_bytes=6_000)
    other, source = f.world.task(subtopology=1), TopicPartition("other", 0)
    f.inputs.start(other, {source: OffsetAndMetadata(0)})
    put(f.world, 0, "x" * 4_000, topic="other")
    put(f.world, 0, *["y" * 500] * 10)
    f.start(0)
    f.inputs.fetch(0)
    assert f.paused() == {source, IN}
    f.inputs.pause(frozenset({1}))
    assert f.paused(after=10) == {source}
    assert f.inputs.buffered_bytes > 4_000


class Greeting(Processor):
    """`init` puts into a cached store."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.context.get_state_store("counts").put("begun", 1)

    def process(self, record: Record) -> None:
        raise AssertionError("the task is paused")


def test_what_a_task_that_begins_during_a_pause_has_put_into_its_caches_is_committed() -> None:
    r = Running(World(counting(processor=Greeting, cached=True), {"statestore_cache_max_bytes": 10_000_000}))
    r.world.context.thread_registry.pause(ALL)
    r.run(0)
    r.step(20, ms=10)
    assert r.world.state.content(TaskId(0, 0)).keys() == {b"begun"}
