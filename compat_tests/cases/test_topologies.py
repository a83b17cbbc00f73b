"""Each shape of topology, undisturbed: output exact, state whole, offsets at the end, nothing left behind."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import (
    BY_VALUE_REPARTITION,
    COPY,
    COUNT,
    COUNT_BY_VALUE,
    COUNT_IN_MEMORY,
    COUNT_OF_OTHER,
    SEVERAL,
    WORDS,
    WORDS_REPARTITION,
)
from compat_tests.cases.steps import order_of
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.changelog import changelog_equals_table
from compat_tests.oracles.findings import hold
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.group import all_owned
from compat_tests.oracles.outputs import in_order, table


@pytest.mark.parametrize(("topology", "flow"), [("copy", COPY), ("count", COUNT)], ids=["copy", "count"])
def test_outputs_are_exact_and_keep_the_whole_order_of_each_partition(
    world: World, topology: str, flow: Flow
) -> None:
    world.input("in", 3, out=3).send(world.records(5_000, keys=200))
    world.instance(topology).start()
    end_and_judge(world, flow)
    hold(in_order(world.cluster.read(world.topic("out")), order_of(world, world.feeds["in"].rows)))


@pytest.mark.short_under("exactly_once_v2")
def test_a_count_in_memory_is_exact_too(world: World) -> None:
    world.input("in", 2, out=2).send(world.records(1_000, keys=50))
    app = world.instance("count-in-memory").start()
    world.finish(app)
    app.start()
    world.feeds["in"].send(world.records(1_000, keys=50))
    end_and_judge(world, COUNT_IN_MEMORY)
    right = table(COUNT_IN_MEMORY, world.feeds["in"].rows, world.cluster.read(world.topic("out")))
    hold(changelog_equals_table(world.cluster.read(world.topic("counts-changelog")), right))


def test_a_count_behind_a_repartition_counts_each_input_once(world: World) -> None:
    world.input("in", 3, out=2).send(world.records(5_000, keys=100, value=lambda number: f"g{number % 37}"))
    world.instance("count-by-value").start()
    end_and_judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])


def test_several_outputs_of_one_input_stay_together_and_in_order(world: World) -> None:
    text = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "the", "end"]
    records = world.records(800, keys=20, value=lambda _: " ".join(world.rng.choices(text, k=6)))
    world.input("in", 2, out=2).send(records)
    world.instance("words").start()
    end_and_judge(world, WORDS, repartitions=[WORDS_REPARTITION])


@pytest.mark.short_under("exactly_once_v2")
def test_two_sub_topologies_of_one_application_are_both_exact(world: World) -> None:
    world.input("in", 2, out=2, counts=3).send(world.records(2_000, keys=100))
    world.input("other", 3).send(world.records(2_000, keys=100))
    world.instance("two", num_stream_threads=2).start()
    end_and_judge(world, COPY, COUNT_OF_OTHER)


@pytest.mark.short_under("exactly_once_v2")
def test_a_task_with_two_input_topics_takes_their_records_by_time(world: World) -> None:
    records = world.records(2_000, keys=30)
    first = set(world.rng.sample(range(len(records)), k=700))
    world.input("in", 2, out=2).send(record for number, record in enumerate(records) if number in first)
    world.input("other", 2).send(record for number, record in enumerate(records) if number not in first)
    world.instance("several").start()
    end_and_judge(world, SEVERAL)
    both = world.feeds["in"].rows + world.feeds["other"].rows
    by_time = order_of(world, sorted(both, key=lambda row: row.timestamp))
    hold(in_order(world.cluster.read(world.topic("out")), by_time))


@pytest.mark.short_under("exactly_once_v2")
def test_records_larger_than_all_input_buffers_together_hold_up_neither_their_partition_nor_others(
    world: World,
) -> None:
    """In one of two partitions that a task merges by time, between records that fit."""
    sent = world.records(600, keys=30)
    large = [one._replace(key=b"k1", value=b"x" * 100_000) if at % 100 == 50 else one for at, one in enumerate(sent)]
    world.input("in", 2, out=2).send(large[::2])
    world.input("other", 2).send(large[1::2])
    world.instance("several", input_buffer_max_bytes=5_000).start()
    end_and_judge(world, SEVERAL)


@pytest.mark.short_under("exactly_once_v2")
def test_an_empty_input_gives_nothing_and_a_late_first_record_is_processed(world: World) -> None:
    feed = world.input("in", 2, out=2)
    app = world.instance("count").start()
    world.group_is(app)
    end_and_judge(world, COUNT)
    app.start()
    world.group_is(app)
    feed.send(world.records(1, keys=1))
    end_and_judge(world, COUNT)


@pytest.mark.short_under("exactly_once_v2")
def test_every_partition_of_many_has_an_owner_and_a_result(world: World) -> None:
    feed = world.input("in", 50, out=4)
    feed.send(world.records(2_000, keys=500))
    world.instance("count", num_stream_threads=2).start()
    end_and_judge(world, COUNT)
    hold(all_owned(world.history().generations, world.cluster.places([feed.topic])))
