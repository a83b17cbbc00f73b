"""Joins of a stream with a versioned table, with grace: what a user may rely on beside Kafka Streams' own results
(`python -m compat_tests.java`)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.records import Record, TopicPartition
from milestones.common.topology import Processor, StreamsBuilder, Topology
from milestones.common.topology.handlers import LogAndContinue
from milestones.common.topology.join_windows import JoinWindows
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness, named
from tests.common.topology.restarting import RestartingDriver

TEXT = serdes.STRING
ORDERS, PRICES = TopicPartition("orders", 0), TopicPartition("prices", 0)
GRACE_MS, HISTORY_MS = 10, 100
BUFFER = "joining-Buffer"


def pair(order: str, price: str | None) -> str:
    if order == "bad":
        raise ValueError("a bad order")
    return f"{order}&{price}"


def topology(left: bool = True, then: Any = None, grace: int = GRACE_MS) -> Topology:
    builder = StreamsBuilder()
    prices = builder.table("prices", "rows", history=HISTORY_MS, key=TEXT, value=TEXT)
    orders = builder.stream("orders", key=TEXT, value=TEXT)
    join = orders.left_join if left else orders.join
    joined = join(prices, pair, grace=grace, name="joining")
    if then is not None:
        joined = joined.process(then)
    joined.to("out", key=TEXT, value=TEXT)
    return builder.build()


class Origin(Processor):
    """Tells where a record is from."""

    def process(self, record: Record) -> None:
        at = self.context.record_metadata()
        assert at is not None
        self.context.forward(record.with_value(f"{record.value} from {at.topic}@{at.offset}"))


class Shop:
    """A driver's topics."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver
        self.out = driver.create_output_topic("out", key=TEXT, value=TEXT)

    def price(self, key: str | None, value: str | None, timestamp: int) -> None:
        self.driver.create_input_topic("prices", key=TEXT, value=TEXT).pipe(key, value, timestamp=timestamp)

    def order(self, key: str | None, value: str | None, timestamp: int, headers: Any = None) -> None:
        topic = self.driver.create_input_topic("orders", key=TEXT, value=TEXT)
        topic.pipe(key, value, timestamp=timestamp, headers=headers)

    def sold(self) -> list[tuple[Any, int]]:
        return [(each.value, each.timestamp) for each in self.out.read_records()]


def test_an_order_waits_for_the_price_of_its_time_that_comes_later() -> None:
    with TopologyTestDriver(topology()) as driver:
        shop = Shop(driver)
        shop.order("tea", "o1", 20)
        assert shop.sold() == []
        shop.price("tea", "1", 15)
        shop.price("tea", "2", 25)
        shop.order("milk", "o2", 30)
        assert shop.sold() == [("o1&1", 20)], "the grace is over: 30 - 10"
        shop.order("tea", "o3", 41)
        assert shop.sold() == [("o2&None", 30)]


def test_orders_are_joined_in_the_order_of_their_times_then_of_their_keys() -> None:
    with TopologyTestDriver(topology()) as driver:
        shop = Shop(driver)
        for key, value, timestamp in (("b", "3", 22), ("a", "2", 22), ("c", "1", 21), ("b", "4", 22)):
            shop.order(key, value, timestamp)
        shop.order("z", "last", 100)
        assert [value for value, _ in shop.sold()] == ["1&None", "2&None", "3&None", "4&None"]


def test_a_wait_and_its_end_are_logged_behind_the_result_at_a_commit_and_again_by_the_next_if_it_fails() -> None:
    task = Harness(topology(), max_task_idle_ms=-1).start()
    buffer = task.task.subtopology.changelogs[BUFFER]

    def logged() -> list[bool]:
        commit = task.task.freeze()
        assert buffer not in [each.topic for each in named(commit.outputs)]
        records = [each for each in named([*commit.changelog()]) if each.topic == buffer]
        task.task.thaw(commit)
        return [each.value is not None for each in records]

    task.pipe(("tea", "o1", 20), ("milk", "o2", 31), topic="orders")
    assert [topic for topic, *_ in task.outputs()] == ["out"]
    assert logged() == [True, True, False]
    task.pipe(("milk", "o3", 32), topic="orders")
    task.outputs()
    assert logged() == [True, True, False, True]


def test_an_order_later_than_the_grace_is_joined_at_once() -> None:
    with TopologyTestDriver(topology()) as driver:
        shop = Shop(driver)
        shop.price("tea", "1", 5)
        shop.order("tea", "o1", 50)
        shop.order("tea", "too late", 39)
        shop.order("tea", "just", 40)
        assert shop.sold() == [("too late&1", 39), ("just&1", 40)]


def test_a_joined_order_has_the_context_of_its_own_record() -> None:
    with TopologyTestDriver(topology(then=Origin)) as driver:
        shop = Shop(driver)
        shop.order("tea", "o1", 20, [("by", b"me"), ("none", None)])
        shop.order("tea", "o2", 31, [("by", b"you")])
        (first,) = shop.out.read_records()
        assert (first.value, first.timestamp, first.headers) == (
            "o1&None from orders@0", 20, [("by", b"me"), ("none", None)],
        )  # fmt: skip


def test_a_record_without_a_key_has_no_row_to_wait_for() -> None:
    """Kafka Streams' buffer doesn't take it, and ends the application."""
    with TopologyTestDriver(topology()) as driver:
        shop = Shop(driver)
        shop.order(None, "o1", 20)
        shop.order("tea", None, 20)
        assert shop.sold() == [("o1&None", 20)]
    with TopologyTestDriver(topology(left=False)) as driver:
        shop = Shop(driver)
        shop.order(None, "o1", 20)
        assert shop.sold() == []
        assert sum(task.dropped_records for task in driver._tasks) == 1


# -- in a task's life


def orders(seed: int, count: int = 60) -> list[tuple[str, str, int]]:
    chance, now, made = random.Random(seed), 100, []
    for number in range(count):
        now += chance.choice([0, 1, 3, 12])
        made.append((chance.choice("ab"), f"o{number}", now - chance.choice([0, 0, 4, 9, 30])))
    return made


def sold(harness: Harness) -> list[tuple[Any, ...]]:
    return [output for output in harness.outputs() if output[0] == "out"]


def started(**settings: Any) -> Harness:
    """With a few prices."""
    harness = Harness(topology(), max_task_idle_ms=-1, **settings).start()
    harness.pipe(*((key, f"{key}{time}", time) for time in range(90, 400, 20) for key in "ab"), topic="prices")
    harness.outputs()
    harness.commit()
    return harness


@pytest.mark.parametrize("seed", range(8))
def test_a_roll_back_at_any_record_changes_no_result_and_no_wait(seed: int) -> None:
    made = orders(seed)
    whole = started()
    whole.pipe(*made, topic="orders")
    expected = sold(whole)
    whole.commit()
    again = started(transactional_id="app")
    assert again.pipe_in_parts(made, random.Random(seed), sold, topic="orders") == expected
    assert again.engine(BUFFER) == whole.engine(BUFFER)


def test_an_order_that_fails_when_it_is_joined_is_skipped_with_the_record_in_work_and_waits_on() -> None:
    """What the skipped record had made of the buffer is taken back."""
    harness = Harness(topology(), processing_handler=LogAndContinue(), max_task_idle_ms=-1).start()
    harness.pipe(("tea", "o1", 20), ("tea", "bad", 21), ("tea", "o2", 32), topic="orders")
    assert sold(harness) == []
    harness.commit()
    assert len(harness.engine(BUFFER)) == 2, "o1 and bad; o2 led to the failure"


@pytest.mark.parametrize("way", ["with the store", "from the changelog"])
@pytest.mark.parametrize("seed", range(4))
def test_orders_wait_on_in_another_process(way: str, seed: int) -> None:
    made = orders(seed)
    whole = started()
    whole.pipe(*made, topic="orders")
    last = ("z", "last", 10_000)
    whole.pipe(last, topic="orders")
    expected = sold(whole)
    first = started()
    first.pipe(*made[:30], topic="orders")
    found = sold(first)
    metadata = first.commit().metadata
    ends = first.changelog_ends()
    second = Harness(topology(), max_task_idle_ms=-1)
    second.task.open()
    if way == "with the store":
        second.state.apply({store: first.engine(store) for store in ends}, ends)
    else:
        for store, topic in second.task.subtopology.changelogs.items():
            records = [Logged(output) for output in first.sent if output.topic == topic]
            second.task._stores.restore(store, records, ends[store])
    assert second.engine(BUFFER) == first.engine(BUFFER)
    second.task.start({ORDERS: 30, PRICES: first.ends["prices"]}, metadata)
    second.ends.update(first.ends)
    second.pipe(*made[30:], topic="orders")
    second.pipe(last, topic="orders")
    found += sold(second)
    assert found == expected, "what was too late doesn't wait"


@pytest.mark.parametrize("grace", [0, 1, GRACE_MS])
@pytest.mark.parametrize("seed", range(4))
def test_a_restart_before_each_order_changes_no_result_and_no_wait(grace: int, seed: int) -> None:
    """What the buffer has seen is the time of its last row, or of none that matters: no committed time is needed."""
    found = []
    for restarts in (False, True):
        with RestartingDriver(topology(grace=grace)) as driver:
            shop, sent = Shop(driver), []
            for time in range(90, 400, 20):
                shop.price("a", f"a{time}", time)
            for order in orders(seed, 30):
                if restarts:
                    driver.restart()
                shop.order(*order)
                sent.append(shop.sold())
            found.append(sent)
    assert found[0] == found[1]


class Logged:
    """An output as the client gives it."""

    def __init__(self, output: Any) -> None:
        self.key, self.value = (lambda: output.key), (lambda: output.value)
        self.timestamp, self.headers = (lambda: (1, output.timestamp)), (lambda: output.headers)


def test_a_buffer_on_disk_does_as_one_in_memory() -> None:
    found = []
    for persistent in (False, True):
        with TopologyTestDriver(topology(), persistent=persistent) as driver:
            shop = Shop(driver)
            for time in range(90, 400, 20):
                shop.price("a", f"a{time}", time)
            for order in orders(1):
                shop.order(*order)
            found.append(driver.produced())
    assert found[0] == found[1]


# -- bad input


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s, t, b: s.join(t, pair, grace=101), "longer than the table's history of 100 ms"),
        (lambda s, t, b: s.join(t, pair, grace=-1), "a grace must be at least 0 ms"),
        (lambda s, t, b: s.join(b.table("plain"), pair, grace=1), "the table isn't versioned"),
        (lambda s, t, b: s.join(t.filter(bool, "kept"), pair, grace=1), "the table isn't versioned"),
        (lambda s, t, b: s.join(t.join(b.table("x"), pair), pair, grace=1), "the table isn't versioned"),
        (
            lambda s, t, b: s.join(b.global_table("g"), pair, on=pair, grace=1),
            "grace, store, logging, in_memory and changelog_config belong to other joins",
        ),
        (
            lambda s, t, b: s.join(b.stream("x"), pair, within=JoinWindows(5, grace=0), grace=1),
            "whose windows have the grace",
        ),
    ],
)
def test_a_grace_that_the_table_cannot_serve_is_an_error_when_it_is_written(build: Any, words: str) -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("orders"), builder.table("prices", "rows", history=HISTORY_MS)
    with pytest.raises(TopologyError, match=words):
        build(stream, table, builder)
