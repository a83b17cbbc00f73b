"""Joins of tables by foreign key on topics of several partitions, over crashes: the tables end as the inputs say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from compat_tests.cases.flows import FOREIGN_KEY_TOPICS
from compat_tests.cases.steps import commit_steps_of
from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.joined import ends_as, folded, joined
from milestones.testing import NotYet

LEFT_KEYS, RIGHT_KEYS = 60, 12
ORDERS, CUSTOMERS, OUTPUTS = 3, 2, 2
"""Partitions."""


def of_row(value: bytes) -> bytes | None:
    """As the topology has it."""
    return None if value.startswith(b"over") else b"k%d" % len(value)


def pair(value: bytes, other: bytes | None) -> bytes:
    return value + b"+" + (b"none" if other is None else other)


def rows(world: World, number: int, keys: int, longest: int, now: int) -> list[Sent]:
    """Changes of a table, a few deletions and rows without a foreign key among them."""

    def value() -> bytes | None:
        text = b"x" * world.rng.randint(1, longest)
        return world.rng.choice([text] * 6 + [text.upper()] * 2 + [b"over", None])

    return [
        Sent(key=b"k%d" % world.rng.randrange(keys), value=value(), timestamp=FIRST_TIMESTAMP + now + at)
        for at in range(number)
    ]


def feed(world: World, number: int) -> None:
    """Some changes of both tables."""
    world.feeds["in"].send(rows(world, 300, LEFT_KEYS, RIGHT_KEYS + 3, number * 10_000))
    world.feeds["other"].send(rows(world, 60, RIGHT_KEYS, 20, number * 10_000 + 100))


def inputs(world: World) -> None:
    world.input("in", ORDERS, out=OUTPUTS, matched=OUTPUTS)
    world.input("other", CUSTOMERS)


def judge_tables(world: World, repartitions: Sequence[str] = FOREIGN_KEY_TOPICS, *, crashed: bool) -> None:
    """Both joins, after the rest of the judgement."""
    end_and_judge(world, repartitions=repartitions, crashed=crashed)
    left, right = (folded(world.feeds[name].rows) for name in ("in", "other"))
    wanted = joined(left, right, of_row, pair)
    inner = {key: value for key, value in wanted.items() if not value.endswith(b"+none")}
    for topic in ("out", "joined-changelog"):
        hold(ends_as(folded(world.cluster.read(world.topic(topic))), wanted))
    # When changes of both tables cross one another, an inner join may keep a former row: docs/table-joins.md.
    hold(ends_as(folded(world.cluster.read(world.topic("matched"))), inner, leftovers=True))


@pytest.mark.short_under("exactly_once_v2")
def test_tables_end_as_their_inputs_say_on_two_instances(world: World) -> None:
    inputs(world)
    for name in ("one", "two"):
        world.instance("foreign-keys", name, num_stream_threads=2).start()
    for number in range(3):
        feed(world, number)
    judge_tables(world, crashed=False)


@pytest.mark.parametrize("step", commit_steps_of("commit.after-commit"))
def test_tables_end_as_their_inputs_say_over_kills_at_any_step_of_a_commit(world: World, step: str) -> None:
    inputs(world)
    app, times = world.instance("foreign-keys"), count()

    def fed_until_it_dies() -> object:
        if not isinstance(world.inputs_committed(), NotYet):  # a slow machine needn't judge the more records for it
            feed(world, next(times))
        return not app.running or NotYet("it runs")

    for number in range(3):
        app.start(fault=f"{step}:kill:{2 + 5 * number}")
        world.wait(fed_until_it_dies, "the fault strikes")
        app.dies(-9)
    app.start()
    feed(world, next(times))
    judge_tables(world, crashed=True)
