"""Bounds of an instance hold with fifty tasks: caches, remembered values, buffered input."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import ProcessingError
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches
from milestones.common.topology import StreamsBuilder
from tests.common.task.harness import Harness, a_store, forward, message, processing
from tests.common.task.test_caching import last_value

TASKS = 50


def fifty(**shared: Any) -> list[Any]:
    return [last_value(cache=0, **shared) for _ in range(TASKS)]


def test_the_caches_of_fifty_tasks_stay_within_the_bound_of_one_instance() -> None:
    caches, rng = RecordCaches(100_000), random.Random(1)
    tasks = fifty(record_caches=caches)
    longest = 0
    for step in range(3_000):
        task = rng.choice(tasks if step % 2 else tasks[:2])
        task.pipe((f"{rng.randrange(500)}", "v" * rng.randrange(200), step))
        held = sum(task.task.cache_bytes() for task in tasks)
        assert held <= caches.taken <= caches.max_bytes
        longest = max(longest, held)
        if step % 100 == 0:
            rng.choice(tasks).commit()
    assert longest > caches.max_bytes // 2, "the bound is made use of"


def test_one_busy_task_among_fifty_may_use_all() -> None:
    caches = RecordCaches(100_000)
    busy, *_ = fifty(record_caches=caches)
    busy.pipe(*((f"{number}", "v", number) for number in range(250)))
    assert busy.task.cache_bytes() > 70_000


def test_what_a_task_took_is_given_back_at_a_commit_a_roll_back_and_its_close() -> None:
    caches = RecordCaches(100_000)
    tasks = fifty(record_caches=caches)
    ends = [lambda task: task.commit(), lambda task: task.task.roll_back(), lambda task: task.task.close(),
            lambda task: task.task.recycle().close()]  # fmt: skip
    for number, task in enumerate(tasks):
        task.pipe(("a", "b", 1))
        assert caches.taken > 0
        ends[number % len(ends)](task)
        assert caches.taken == 0


def test_a_flush_that_fails_gives_back_at_the_roll_back() -> None:
    builder = StreamsBuilder()
    table = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key().reduce(max, store="store")
    table.to_stream().map_values(lambda value: int(value)).to("out", value=serdes.LONG)
    caches = RecordCaches(100_000)
    task = Harness(builder.build(), record_caches=caches).start()
    task.pipe(("a", "no number", 1))
    with pytest.raises(ProcessingError):
        task.commit()
    task.task.roll_back()
    assert caches.taken == 0


def test_what_punctuations_write_stays_within_the_bound_too() -> None:
    numbers = iter(range(1_000))

    def init(context: Any) -> None:
        store = context.get_state_store("store")
        context.schedule(10, "wall-clock-time", lambda now: store.put(f"key {next(numbers)}", "v" * 50))

    caches = RecordCaches(10_000)
    task = Harness(processing(forward, [a_store(cached=True)], init=init), record_caches=caches).start()
    for _ in range(100):
        task.clock.advance(10)
        assert task.task.punctuate(task.clock.wall_ms())
        assert task.task.cache_bytes() <= caches.taken <= caches.max_bytes


def test_fifty_tasks_remember_no_more_than_an_instance_may() -> None:
    caches, rng = ReadCaches(200_000), random.Random(1)
    tasks = fifty(read_caches=caches)
    for step in range(100):
        task = rng.choice(tasks)
        task.pipe(*((f"{rng.randrange(5_000)}", "v" * rng.randrange(400), step) for _ in range(50)))
        assert caches.memory_bytes() <= caches.max_bytes
        if step % 10 == 0:
            task.commit()
    assert caches.memory_bytes() > caches.max_bytes // 4
    for task in tasks:
        task.task.close()
    assert caches.memory_bytes() == 0


@pytest.mark.parametrize(("key", "value", "headers"), [
    (b"k" * 1_000_000, b"v", None), (b"k", b"v" * 1_000_000, None), (b"k", b"v", [("h", b"x" * 1_000_000)]),
    (None, None, [("h" * 1_000_000, None)]), (b"k", None, [("h", b"x" * 100)] * 10_000),
], ids=["key", "value", "header", "a header's name", "many headers"])  # fmt: skip
def test_all_of_a_record_counts_in_the_bytes_of_the_input(key: Any, value: Any, headers: Any) -> None:
    task = last_value(cache=0)
    partition = task.task.partitions[0]
    task.task.input.add(partition, [message(0, key, value, 1, headers=headers)])
    assert 1_000_000 < task.task.input.bytes() < 4_000_000


def test_what_fifty_tasks_keep_back_counts_with_the_memory_that_its_order_takes() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=str, value=str).suppress(after=1_000_000, name="held").to_stream().to("out")
    tracemalloc.start()
    tasks = [Harness(builder.build()).start() for _ in range(TASKS)]
    for task in tasks:
        task.pipe(*((f"key-{number:06}", "v", 1) for number in range(400)))
        task.commit()
    snapshot = tracemalloc.take_snapshot()
    tracemalloc.stop()
    order = [tracemalloc.Filter(True, f"*{name}") for name in ("suppress_buffer.py", "sortedlist.py")]
    taken = sum(trace.size for trace in snapshot.filter_traces(order).traces)
    counted = sum(task.task.kept_bytes() for task in tasks)
    assert 0.5 * taken < counted < 3 * taken
    for task in tasks:
        task.task.close()
    assert sum(task.task.kept_bytes() for task in tasks) == 0
