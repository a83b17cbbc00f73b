"""What an instance can take, and how its threads share that and its processing threads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common.config import StreamsConfig
from milestones.instance.capacity import capacity, processing_threads
from milestones.instance.thread_registry import ThreadRegistry
from tests.milestones.fakes import World

THREADS = st.integers(1, 40)


def config(stream: int, processing: int | None = None, **settings: Any) -> StreamsConfig:
    given = {} if processing is None else {"num_processing_threads": processing}
    return StreamsConfig(
        application_id="app", bootstrap_servers="b:1", num_stream_threads=stream, variables={}, **given, **settings
    )


def capacities(of: StreamsConfig, thread_registry: ThreadRegistry) -> list[int]:
    return [capacity(of, thread_registry, number) for number in thread_registry.numbers()]


@given(THREADS, st.none() | THREADS)
def test_the_members_of_an_instance_share_the_larger_one_of_its_numbers_of_threads(
    stream: int, processing: int | None
) -> None:
    shares = capacities(config(stream, processing), ThreadRegistry(stream))
    assert sum(shares) == max(stream, processing or 0)
    assert min(shares) >= 1
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("stage", ["baseline", "m1", "m2", "m3", "fencing_tolerance"])
def test_the_rule_is_that_of_every_stage_so_that_a_rolling_restart_to_another_one_moves_nothing(stage: str) -> None:
    assert capacities(config(2, 5, milestones=stage), ThreadRegistry(2)) == [3, 2]
    assert capacities(config(3, milestones=stage), ThreadRegistry(3)) == [1, 1, 1]


@given(THREADS, st.none() | THREADS, st.lists(st.booleans(), max_size=20))
def test_threads_that_come_and_go_count_from_the_next_join(
    stream: int, processing: int | None, changes: list[bool]
) -> None:
    thread_registry, of = ThreadRegistry(stream), config(stream, processing)
    for comes in changes:
        if comes:
            thread_registry.add()
        elif len(thread_registry.numbers()) > 1:
            thread_registry.gone(thread_registry.remove())
        shares = capacities(of, thread_registry)
        assert sum(shares) == max(len(thread_registry.numbers()), processing or 0)
        assert min(shares) >= 1


@given(THREADS, THREADS, st.integers(0, 5))
def test_processing_threads_are_as_many_as_the_config_says_and_one_for_each_stream_thread(
    stream: int, processing: int, added: int
) -> None:
    thread_registry, of = ThreadRegistry(stream), config(stream, processing)
    for _ in range(added):
        thread_registry.add()
    shares = [processing_threads(of, thread_registry, number) for number in thread_registry.numbers()]
    assert sum(shares) == max(processing, stream + added)
    assert min(shares) >= 1
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


def test_processing_threads_that_are_not_given_are_as_many_as_stream_threads_are_now() -> None:
    thread_registry, of = ThreadRegistry(3), config(3)
    assert of.num_processing_threads == 3
    thread_registry.add()
    assert [processing_threads(of, thread_registry, number) for number in thread_registry.numbers()] == [1, 1, 1, 1]
    thread_registry.remove(1)
    thread_registry.remove(2)
    assert [processing_threads(of, thread_registry, number) for number in thread_registry.numbers()] == [1, 1]


def test_a_thread_that_leaves_still_has_a_share_until_it_has_left() -> None:
    thread_registry = ThreadRegistry(2)
    thread_registry.remove(2)
    assert capacity(config(2, 8), thread_registry, 2) == 4
    assert capacities(config(2, 8), thread_registry) == [8]


def test_a_member_says_its_share_as_it_is_when_it_joins() -> None:
    world = World(settings={"num_processing_threads": 7})
    rebalance = world.loop()._rebalance
    assert rebalance._subscription().capacity == 7
    world.context.thread_registry.add()
    assert rebalance._subscription().capacity == 4
    world.context.thread_registry.remove(2)
    assert rebalance._subscription().capacity == 7
