"""Cogroup: what a user may rely on beside Kafka Streams' own results (`python -m compat_tests.java`)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from milestones import SessionWindows, TimeWindows
from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.records import TopicPartition
from milestones.common.topology import CogroupedKStream, StreamsBuilder, Topology
from milestones.common.topology.handlers import LogAndContinue
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness

TEXT = serdes.STRING
SIDES = ("left", "right")


def grouped(builder: StreamsBuilder, topic: str) -> Any:
    return builder.stream(topic, key=TEXT, value=TEXT).group_by_key()


def add_left(_key: str, value: str, aggregate: str) -> str:
    return aggregate + value


def add_right(_key: str, value: str, aggregate: str) -> str:
    if value == "fail":
        raise RuntimeError("user code")
    return f"{aggregate}({value})"


def cogrouped(builder: StreamsBuilder) -> CogroupedKStream:
    return grouped(builder, "left").cogroup(add_left).cogroup(grouped(builder, "right"), add_right)  # type: ignore[no-any-return]


def plain() -> Topology:
    builder = StreamsBuilder()
    cogrouped(builder).aggregate(str, "both", value=TEXT).to_stream().to("out", value=TEXT)
    return builder.build()


def pieces(seed: int, count: int = 60) -> list[tuple[str, str, str, int]]:
    chance = random.Random(seed)
    return [(chance.choice(SIDES), chance.choice("abc"), str(at % 10), 100 + at) for at in range(count)]


def given(harness: Harness) -> list[tuple[Any, ...]]:
    return [output for output in harness.outputs() if output[0] == "out"]


def run(harness: Harness) -> None:
    """To the end of all topics."""
    for partition in harness.task.partitions:
        harness.task.input.reached_end(partition, harness.ends.get(partition.topic, 0), 0)
    harness.run()


def test_all_streams_add_to_one_row() -> None:
    with TopologyTestDriver(plain()) as driver:
        for topic, key, value in [("left", b"k", b"1"), ("right", b"k", b"2"), ("left", b"k", b"3")]:
            driver.pipe(topic, key, value, 5)
        assert driver.store("both").get("k").value == "1(2)3"


@pytest.mark.parametrize("cache", [0, 1 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_a_roll_back_at_any_record_changes_no_row(seed: int, cache: int) -> None:
    made, chance = pieces(seed), random.Random(seed)
    expected: dict[str, str] = {}
    for topic, key, value, _ in made:
        expected[key] = (add_left if topic == "left" else add_right)(key, value, expected.get(key, ""))
    harness = Harness(plain(), cache, transactional_id="app").start()
    found: dict[bytes, bytes] = {}
    committed = dict.fromkeys(SIDES, 0)
    at = 0
    while at < len(made):
        some = made[at : at + chance.randrange(1, 9)]
        for topic, key, value, time in some:  # one by one: both topics go by time
            harness.feed((key, value, time), topic=topic)
            run(harness)
        if chance.random() < 0.4:
            harness.task.roll_back()
            harness.outputs()
            harness.ends = dict(committed)
            harness.task.start({TopicPartition(side, 0): committed[side] for side in SIDES}, {}, initialise=False)
            harness.go_on()
            continue
        sent = len(harness.sent)
        harness.commit()
        harness.outputs()
        found |= {o.key: o.value for o in harness.sent[sent:] if o.topic == "out"}  # type: ignore[misc]
        committed = {side: harness.ends.get(side, 0) for side in SIDES}
        at += len(some)
    assert {key.decode(): value.decode() for key, value in found.items()} == expected


def test_a_record_that_fails_leaves_the_row_of_the_others() -> None:
    harness = Harness(plain(), processing_handler=LogAndContinue()).start()
    harness.feed(("k", "1", 1), ("k", "2", 4), topic="left")
    harness.feed(("k", "fail", 2), ("k", "3", 3), topic="right")
    run(harness)
    assert [output[2] for output in given(harness)] == [b"1", b"1(3)", b"1(3)2"]


def test_the_topics_of_all_streams_need_equal_partition_counts() -> None:
    (sub,) = plain().resolve("app")
    assert sub.copartition_groups == (frozenset(SIDES),)


def test_each_stream_has_its_own_time() -> None:
    """What is late for one stream is not for another, as in Kafka Streams."""
    builder = StreamsBuilder()
    windows = cogrouped(builder).windowed_by(TimeWindows(10, grace=0))
    windows.aggregate(str, None, "both", value=TEXT, retention=10_000)
    with TopologyTestDriver(builder) as driver:
        for topic, value, time in [("left", b"1", 5), ("left", b"2", 50), ("left", b"late", 6), ("right", b"3", 7)]:
            driver.pipe(topic, b"k", value, time)
        assert driver.store("both").fetch("k", 0).value == "1(3)"


def test_sessions_need_a_merger_and_other_windows_take_none() -> None:
    builder = StreamsBuilder()
    both = cogrouped(builder)
    with pytest.raises(TopologyError, match="give aggregate a merger"):
        both.windowed_by(SessionWindows(5, grace=0)).aggregate(str)
    with pytest.raises(TopologyError, match="only sessions are merged"):
        both.windowed_by(TimeWindows(5, grace=0)).aggregate(str, lambda key, one, other: one + other)


def test_a_cogroup_is_a_value_to_which_others_add() -> None:
    builder = StreamsBuilder()
    left = grouped(builder, "left").cogroup(add_left)
    both = left.cogroup(grouped(builder, "right"), add_right)
    left.aggregate(str, "of-left", value=TEXT)
    both.aggregate(str, "of-both", value=TEXT)
    with TopologyTestDriver(builder) as driver:
        driver.pipe("left", b"k", b"1", 1)
        driver.pipe("right", b"k", b"2", 1)
        assert driver.store("of-left").get("k").value == "1"
        assert driver.store("of-both").get("k").value == "1(2)"


def test_what_can_t_be_cogrouped_is_refused() -> None:
    builder = StreamsBuilder()
    left = grouped(builder, "left")
    both = left.cogroup(add_left)
    with pytest.raises(TopologyError, match="group with group_by_key"):
        both.cogroup(builder.stream("right"), add_right)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="two StreamsBuilders"):
        both.cogroup(grouped(StreamsBuilder(), "right"), add_right)
    with pytest.raises(TopologyError, match="is in the cogroup already"):
        both.cogroup(left, add_right)
    with pytest.raises(TopologyError, match="needs a function"):
        both.cogroup(grouped(builder, "right"), "add")  # type: ignore[arg-type]


def test_two_streams_with_new_keys_need_names_for_their_topics() -> None:
    builder = StreamsBuilder()

    def rekeyed(topic: str, name: str | None = None) -> Any:
        return builder.stream(topic, key=TEXT, value=TEXT).group_by(lambda _, value: value, name=name)

    with pytest.raises(TopologyError, match=r"go through one repartition topic, both-repartition: name their topics"):
        rekeyed("left").cogroup(add_left).cogroup(rekeyed("right"), add_right).aggregate(str, "both")
    rekeyed("one").cogroup(add_left).cogroup(rekeyed("two", "by-value"), add_right).aggregate(str, "named")
    topics = {topic for sub in builder.build().resolve("app") for topic in sub.repartition_topics}
    assert {"app-named-repartition", "app-by-value-repartition"} <= topics
