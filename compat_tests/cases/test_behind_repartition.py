"""A backlog of hours before a join, one side of which comes by a repartition topic: what finds its partner.

The records of a repartition topic have the order in which the tasks before it have written them, so that those of one
task may lie hours behind those of another; and the join's task may be ahead of the tasks before it. Kafka Streams does
the same. Two settings help, on each stage.
"""

from __future__ import annotations

import random

import pytest

from compat_tests.apps.topologies import LONG_GRACE_MS, PAID_WITHIN_MS
from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

ORDERS, APART_MS = 600, 60_000
IDLE_MS = 3_000
REPARTITION = "by-order-left-repartition"

pytestmark = pytest.mark.short_under("exactly_once_v2")


def feed_a_backlog(world: World, partitions: int) -> None:
    """Ten hours of orders, each paid in time, and a last order that nobody pays."""
    chance = random.Random(1)
    orders, payments = [], []
    for number in range(ORDERS):
        order, time = b"o%d" % number, FIRST_TIMESTAMP + number * APART_MS
        orders.append(Sent(b"customer %d" % (number % 97), order, time))
        payments.append(Sent(order, b"p%d" % number, time + chance.randrange(PAID_WITHIN_MS)))
    last = FIRST_TIMESTAMP + ORDERS * APART_MS + PAID_WITHIN_MS
    orders.append(Sent(b"customer", b"last", last))
    world.input("other", partitions).send(sorted(payments, key=lambda sent: sent.timestamp))
    world.input("in", partitions, out=1).send(orders)


def all_are_paid(world: World) -> None:
    end_and_judge(world, repartitions=[REPARTITION])
    rows = sorted(row.value or b"" for row in world.cluster.read(world.topic("out")))
    assert rows == sorted(b"o%d+p%d" % (number, number) for number in range(ORDERS))


def test_a_grace_longer_than_the_backlog_finds_all_whatever_the_order_in_the_topic(world: World) -> None:
    assert LONG_GRACE_MS > ORDERS * APART_MS
    feed_a_backlog(world, 2)
    world.instance("paid-late").start()
    all_are_paid(world)


def test_behind_one_task_a_join_that_waits_for_both_sides_finds_all_with_a_short_grace(world: World) -> None:
    """`max_task_idle_ms` is longer than a commit of the task before it takes."""
    feed_a_backlog(world, 1)
    world.instance("paid", max_task_idle_ms=IDLE_MS).start()
    all_are_paid(world)
