"""What type checkers infer of a program. Not a test that runs: `python -m tests.typed` has two checkers look at it.

*Guarantees*: every `assert_type` is what a user's editor shows.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from milestones import (
    AggregationWithHeaders,
    FixedKeyProcessor,
    FixedKeyRecord,
    JoinWindows,
    KeyValueStore,
    KGroupedStream,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    Record,
    SessionStore,
    SessionStoreWithHeaders,
    SessionWindowedSerde,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    TimestampedWindowStoreWithHeaders,
    TimeWindows,
    UnlimitedWindows,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
    WindowedKStream,
    WindowedSerde,
    WindowStore,
    serdes,
)
from milestones.testing import InputTopic, OutputTopic, TopologyTestDriver


@dataclass
class Order:
    customer: str
    amount: float


@dataclass
class Customer:
    name: str


builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=Order)
customers = builder.table("customers", key=str, value=Customer)
assert_type(orders, KStream[str, Order])
assert_type(customers, KTable[str, Customer])
assert_type(builder.stream("lines", key=serdes.LONG, value=serdes.STRING), KStream[int, str])
assert_type(builder.stream("tags", key=str, value=list[str]).map_values(len), KStream[str, int])

# -- one record at a time

assert_type(orders.filter(lambda _, order: order.amount > 1), KStream[str, Order])
assert_type(orders.map_values(lambda order: order.amount), KStream[str, float])
assert_type(orders.map_values(lambda key, order: (key, order.amount), with_key=True), KStream[str, tuple[str, float]])
assert_type(orders.map(lambda key, order: (order.customer, len(key))), KStream[str, int])
assert_type(orders.flat_map_values(lambda order: [order.amount, 2.0]), KStream[str, float])
assert_type(orders.select_key(lambda key, _: len(key)), KStream[int, Order])
assert_type(orders.peek(lambda key, order: print(key, order)), KStream[str, Order])
assert_type(orders.split().branch(lambda _, order: order.amount > 1).default_branch(), dict[str, KStream[str, Order]])

# -- by key

assert_type(orders.group_by_key(), KGroupedStream[str, Order])
by_customer = orders.group_by(lambda _, order: order.customer, key=str)
assert_type(by_customer, KGroupedStream[str, Order])
assert_type(by_customer.count("count"), KTable[str, int])
assert_type(by_customer.reduce(lambda one, other: max(one, other, key=lambda order: order.amount)), KTable[str, Order])
spent = by_customer.aggregate(float, lambda _key, order, total: total + order.amount, "spent", value=float)
assert_type(spent, KTable[str, float])
windows = TimeWindows(timedelta(minutes=1), grace=timedelta(seconds=10))
assert_type(by_customer.windowed_by(windows).count(), KTable[Windowed[str], int])
assert_type(
    by_customer.windowed_by(windows).count().to_stream(lambda windowed, count: windowed.key), KStream[str, int]
)

sessions = by_customer.windowed_by(SessionWindows(timedelta(minutes=1), grace=0))
assert_type(sessions, WindowedKStream[str, Order])
assert_type(sessions.count(), KTable[Windowed[str], int])



def both_totals(_customer: str, one: float, other: float) -> float:
    return one + other


assert_type(
    sessions.aggregate(float, lambda _key, order, total: total + order.amount, both_totals),
    KTable[Windowed[str], float],
)
sliding = by_customer.windowed_by(SlidingWindows(timedelta(minutes=1), grace=0))
assert_type(sliding.reduce(lambda one, _: one), KTable[Windowed[str], Order])
assert_type(by_customer.windowed_by(UnlimitedWindows()).count().to_stream(), KStream[Windowed[str], int])
assert_type(
    builder.stream("counts", key=WindowedSerde(serdes.STRING, 60_000), value=int), KStream[Windowed[str], int]
)
assert_type(builder.table("sessions", key=SessionWindowedSerde(str), value=int), KTable[Windowed[str], int])


def plus(_customer: str, order: Order, total: float) -> float:
    return total + order.amount


both = by_customer.cogroup(plus)
assert_type(both.aggregate(float), KTable[str, float])
assert_type(both.windowed_by(windows).aggregate(float), KTable[Windowed[str], float])
assert_type(by_customer.windowed_by(windows).count().suppress(until="window_closes"), KTable[Windowed[str], int])

# -- tables

assert_type(customers.map_values(lambda customer: customer.name), KTable[str, str])
assert_type(customers.to_stream(), KStream[str, Customer])
customers.to_stream().to("customers-again", upserts=True)
by_number = builder.table("numbers", key=int, value=Customer)
assert_type(customers.join(spent, lambda customer, total: (customer.name, total)), KTable[str, tuple[str, float]])
assert_type(
    customers.left_join(by_number, lambda one, other: other, foreign_key=lambda key, customer: len(customer.name)),
    KTable[str, Customer | None],
)
assert_type(customers.group_by(lambda key, customer: (customer.name, 1)).count(), KTable[str, int])

joined = spent.join(customers, lambda total, customer: (customer.name, total))
assert_type(joined, KTable[str, tuple[str, float]])
assert_type(
    spent.left_join(customers, lambda total, customer: customer.name if customer else "?"), KTable[str, str]
)

# -- joins of streams

within = JoinWindows(timedelta(minutes=1), grace=timedelta(0))
payments = builder.stream("payments", key=str, value=int)
rates = builder.global_table("rates", key=int, value=float)
assert_type(orders.join(payments, lambda order, cents: order.amount + cents, within=within), KStream[str, float])
assert_type(
    orders.outer_join(payments, lambda order, cents: (order is None, cents), within=within),
    KStream[str, tuple[bool, int | None]],
)
assert_type(orders.join(customers, lambda order, customer: customer.name), KStream[str, str])
assert_type(
    orders.left_join(customers, lambda key, order, customer: customer or key, with_key=True),
    KStream[str, Customer | str],
)
assert_type(
    orders.join(rates, lambda order, rate: order.amount * rate, on=lambda key, _: len(key)), KStream[str, float]
)

# -- processors and stores


class Totals(Processor[str, Order, str, float]):
    def init(self, context: ProcessorContext[str, float]) -> None:
        super().init(context)
        self.totals: KeyValueStore[str, float] = context.get_state_store("totals")

    def process(self, record: Record[str, Order]) -> None:
        total = self.totals.get(record.key)
        assert_type(total, float | None)
        assert_type(self.totals.put_if_absent(record.key, 1.0), float | None)
        for key, value in self.totals.range("a"):
            assert_type((key, value), tuple[str, float])
        self.context.forward(record.with_value((total or 0.0) + record.value.amount))


class Amounts(FixedKeyProcessor[str, Order, float]):
    def process(self, record: FixedKeyRecord[str, Order]) -> None:
        self.context.forward(record.with_value(record.value.amount))


def rows(store: TimestampedKeyValueStore[str, Order]) -> None:
    assert_type(store.get("a"), ValueAndTimestamp[Order] | None)


def windows_of(store: WindowStore[str, Order], timed: TimestampedWindowStore[str, float]) -> None:
    assert_type(store.fetch("a", 0), Order | None)
    assert_type(store.fetch("a", 0, 9), Iterator[tuple[int, Order]])
    assert_type(store.backward_fetch_range(None, "b", 0, 9), Iterator[tuple[Windowed[str], Order]])
    assert_type(store.put("a", Order("ann", 1.0), 0), bool)
    assert_type(timed.fetch("a", 0), ValueAndTimestamp[float] | None)
    assert_type(timed.fetch("a", 0, 9), Iterator[tuple[int, ValueAndTimestamp[float]]])
    for windowed, row in timed.all():
        assert_type((windowed, row), tuple[Windowed[str], ValueAndTimestamp[float]])


def headed(
    windowed: TimestampedWindowStoreWithHeaders[str, float], sessions: SessionStoreWithHeaders[str, float]
) -> None:
    assert_type(windowed.fetch("a", 0), ValueTimestampHeaders[float] | None)
    assert_type(windowed.all(), Iterator[tuple[Windowed[str], ValueTimestampHeaders[float]]])
    assert_type(sessions.fetch_session("a", 0, 9), AggregationWithHeaders[float] | None)
    assert_type(sessions.fetch("a"), Iterator[tuple[Windowed[str], AggregationWithHeaders[float]]])


def sessions_of(store: SessionStore[str, float]) -> None:
    assert_type(store.fetch_session("a", 0, 9), float | None)
    for session, value in store.find_sessions("a", 0, 9):
        assert_type((session, value), tuple[Windowed[str], float])
        store.remove(session)
    assert_type(store.fetch_range(None, "b"), Iterator[tuple[Windowed[str], float]])


assert_type(orders.process(Totals, "totals"), KStream[str, float])
assert_type(orders.process_values(Amounts), KStream[str, float])

# -- the test driver


def driven(driver: TopologyTestDriver) -> None:
    assert_type(driver.create_input_topic("orders", key=str, value=Order), InputTopic[str, Order])
    out = driver.create_output_topic("out", key=str, value=float)
    assert_type(out, OutputTopic[str, float])
    assert_type(out.read_key_values(), list[tuple[str, float]])
    assert_type(out.read_record(), Record[str, float])
