"""At least once, a crash loses no update of a table: neither a deletion, nor what is taken out of a group.

A changelog that is ahead of the results would lose both: a row that comes once more finds itself in the store, as its
own old value.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.harness.feed import Sent
from milestones import KTable, StreamsBuilder, Topology, serdes
from milestones.common.state.record_caches import RecordCaches
from tests.common.task.harness import named
from tests.common.topology.test_lives_of_times import NOW, Life

pytestmark = pytest.mark.usefixtures("quiet")

TEXT = serdes.STRING
SEEDS = 6


def is_of(side: str) -> Callable[[str, str], bool]:
    return lambda _, value: value.startswith(side)


def number(value: str) -> str | None:
    return None if value.endswith("-") else value[1:]


def pair(one: str | None, other: str | None) -> str:
    return f"{one}+{other}"


def tables(*, grouped: bool) -> Topology:
    """Two tables of one stream, which are joined, and filtered and grouped anew."""
    builder = StreamsBuilder()
    stream = builder.stream("app-in", key=TEXT, value=TEXT)

    def side(name: str) -> KTable[str, str]:
        return stream.filter(is_of(name)).map_values(number).to_table(f"{name}-rows", key=TEXT, value=TEXT)

    def out(name: str, rows: KTable[Any, Any]) -> None:
        named = rows.to_stream().select_key(lambda key, _: f"{name} {key}").map_values(str)
        named.to("app-out", key=TEXT, value=TEXT)

    left, right = side("L"), side("R")
    out("inner", left.join(right, pair))
    out("left", left.left_join(right, pair))
    out("outer", left.outer_join(right, pair))
    if not grouped:
        return builder.build()
    odd = left.filter(lambda _, value: bool(int(value) % 2))
    odd.group_by(lambda _, value: (value[-1], value), key=TEXT, value=TEXT).count("groups")
    kept = left.filter(lambda _, value: int(value) > 50, store="kept", value=TEXT)
    kept.group_by(lambda key, value: (value[-1], value), key=TEXT, value=TEXT, name="of-kept").count("kept-groups")
    return builder.build()


def rows(rng: random.Random, count: int) -> list[Sent]:
    values = [f"{side}{'-' if rng.random() < 0.3 else rng.randint(1, 99)}" for side in rng.choices("LR", k=count)]
    return [Sent(rng.choice([b"a", b"b", b"c"]), value.encode(), NOW + at) for at, value in enumerate(values)]


@pytest.mark.parametrize("logs_at_commit", [False, True], ids=["before m5", "from m5 on"])
@pytest.mark.parametrize("grouped", [False, True], ids=["joins", "joins and groups"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_at_least_once_a_crash_loses_no_update_of_a_table(seed: int, grouped: bool, logs_at_commit: bool) -> None:
    rng = random.Random(seed)
    records, topology = rows(rng, 40), tables(grouped=grouped)
    undisturbed = Life(records, exactly_once=False, logs_at_commit=logs_at_commit, topology=topology)
    while not undisturbed.done:
        undisturbed.process()
        undisturbed.commit()
    life = Life(records, exactly_once=False, logs_at_commit=logs_at_commit, topology=topology)
    life.live_at_random(rng)
    assert last_rows(life.results) == last_rows(undisturbed.results)
    assert {*to_groups(undisturbed.results)} <= {*to_groups(life.results)}


def inner_join() -> Topology:
    """Of two tables of which nothing needs the old values."""
    builder = StreamsBuilder()
    left, right = (
        builder.stream("app-in", key=TEXT, value=TEXT).filter(is_of(name)).map_values(number).to_table(
            f"{name}-rows", key=TEXT, value=TEXT
        )
        for name in "LR"
    )
    left.join(right, pair).to_stream().map_values(str).to("app-out", key=TEXT, value=TEXT)
    return builder.build()


def stream_table_join() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("app-in", key=TEXT, value=TEXT)
    table = stream.filter(is_of("R")).map_values(number).to_table("R-rows", key=TEXT, value=TEXT)
    stream.filter(is_of("L")).join(table, pair).to("app-out", key=TEXT, value=TEXT)
    return builder.build()


def stream_join_of_a_joined_table() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("app-in", key=TEXT, value=TEXT)
    left, right = (
        stream.filter(is_of(name)).map_values(number).to_table(f"{name}-rows", key=TEXT, value=TEXT) for name in "LR"
    )
    joined = left.join(right, pair, store="joined", value=TEXT)
    stream.filter(is_of("S")).join(joined, pair).to("app-out", key=TEXT, value=TEXT)
    return builder.build()


@pytest.mark.parametrize("logs_at_commit", [False, True], ids=["before m5", "from m5 on"])
@pytest.mark.parametrize(("topology", "committed", "crash", "result"), [
    (inner_join, [b"L1", b"R1"], [b"L-", b"R-"], b"None"),
    (inner_join, [b"L1", b"R1"], [b"R-", b"L-"], b"None"),
    (stream_table_join, [b"R1"], [b"L2", b"R-"], b"L2+1"),
    (stream_join_of_a_joined_table, [b"L1", b"R1"], [b"S2", b"L-"], b"S2+1+1"),
], ids=["a deletion on the left", "a deletion on the right", "a stream's record", "a joined row"])  # fmt: skip
def test_at_least_once_a_crash_loses_no_result_whose_row_of_the_other_side_is_deleted_behind_it(
    topology: Callable[[], Topology], committed: list[bytes], crash: list[bytes], result: bytes, logs_at_commit: bool
) -> None:
    """All changelogs that are written between commits are in Kafka then, and none of the results."""
    records = [Sent(b"a", value, NOW + at) for at, value in enumerate(committed + crash)]
    life = Life(records, exactly_once=False, logs_at_commit=logs_at_commit, topology=topology())
    for _ in committed:
        life.process()
    life.commit()
    for _ in crash:
        life.process()
    life.log(named(life.task.take_outputs()))
    life.begin(life.empty())
    for _ in crash:
        life.process()
    life.commit()
    assert life.results[-1][1] == result


def test_at_least_once_a_crash_loses_no_deletion_that_a_cache_was_to_emit() -> None:
    """The flush of a key that is and was absent emits nothing."""
    builder = StreamsBuilder()
    table = builder.stream("app-in", key=TEXT, value=TEXT).map_values(number).to_table("rows", key=TEXT, value=TEXT)
    table.to_stream().map_values(str).to("app-out", key=TEXT, value=TEXT)
    records = [Sent(b"a", value, NOW + at) for at, value in enumerate([b"L1", b"L-"])]
    caches = RecordCaches(1 << 20)
    life = Life(
        records, exactly_once=False, logs_at_commit=False, topology=builder.build(), record_caches=caches
    )  # fmt: skip
    life.process()
    life.commit()
    life.process()
    life.task.flush()
    life.log(named(life.task.take_outputs()))
    life.begin(life.empty())
    life.process()
    life.commit()
    assert [value for _, value, _ in life.results] == [b"1", b"None"]


Result = tuple[bytes, bytes, int]


def last_rows(results: list[Result]) -> dict[bytes, bytes]:
    return {key: value for key, value, _ in results if b" " in key}


def to_groups(results: list[Result]) -> list[Result]:
    """Updates on their way to the groups, by their last digit: the new row, the old one."""
    return [one for one in results if b" " not in one[0]]
