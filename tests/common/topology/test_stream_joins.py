"""Joins of two streams: what they are given, what they refuse, and what stands around them. `test_join_semantics.py`
compares their results with Kafka Streams."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from milestones import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    serdes,
)
from milestones.common.state.stores.kinds import changelog_settings
from milestones.common.topology.nodes import SubTopology
from milestones.testing import TopologyTestDriver
from tests.common.topology.restarting import RestartingDriver

TEXT, LONG = serdes.STRING, serdes.LONG
WITHIN = JoinWindows(10, grace=5)


def pair(left: str | None, right: str | None) -> str:
    return f"{left or '-'}+{right or '-'}"


def two(builder: StreamsBuilder) -> tuple[Any, Any]:
    return builder.stream("left", key=TEXT, value=TEXT), builder.stream("right", key=TEXT, value=TEXT)


def results(builder: StreamsBuilder, *records: tuple[str, Any, Any, int], **settings: Any) -> list[tuple[Any, ...]]:
    """(key, value, timestamp) of what reaches "out"."""
    with TopologyTestDriver(builder, default_key_serde=TEXT, default_value_serde=TEXT, **settings) as driver:
        for topic, key, value, timestamp in records:
            driver.create_input_topic(topic).pipe(key, value, timestamp=timestamp)
        return [record[:3] for record in driver.create_output_topic("out").read_records()]


def joined(kind: str, *records: tuple[str, Any, Any, int], **options: Any) -> list[tuple[Any, ...]]:
    builder = StreamsBuilder()
    left, right = two(builder)
    getattr(left, kind)(right, pair, **{"within": WITHIN, **options}).to("out")
    return results(builder, *records)


def subs(builder: StreamsBuilder) -> tuple[SubTopology, ...]:
    return builder.build().resolve("app")


# -- windows


def test_windows_are_given_in_ms_or_as_timedeltas() -> None:
    windows = JoinWindows(timedelta(seconds=1), 500, grace=timedelta(minutes=1))
    assert (windows.before_ms, windows.after_ms, windows.grace_ms, windows.size_ms) == (1000, 500, 60_000, 1500)
    assert JoinWindows(7, grace=0) == JoinWindows(7, 7, grace=0)
    assert JoinWindows(7, grace=1).before(3).after(-2) == JoinWindows(3, -2, grace=1)


@pytest.mark.parametrize(
    ("before", "after", "grace", "says"),
    [
        (-1, None, 0, r"records can't be -1 apart"),
        (5, -6, 0, r"from 5 before a record to -6 after it ends before it begins"),
        (5, 5, -1, r"the grace of a join must be at least 0 ms, not -1"),
        (1.5, 5, 0, r"the time before a record must be a timedelta or a number of ms, not 1.5"),
        (5, "5", 0, r"the time after a record must be"),
        (5, 5, None, r"the grace of a join must be a timedelta"),
    ],
)
def test_windows_that_are_none_are_refused(before: Any, after: Any, grace: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        JoinWindows(before, after, grace=grace)


def test_both_ends_of_a_window_belong_to_it() -> None:
    records = [("right", "k", f"r{time}", time) for time in (89, 90, 105, 106)]
    found = joined("join", *records, ("left", "k", "l", 100), within=JoinWindows(10, 5, grace=50))
    assert found == [("k", "l+r90", 100), ("k", "l+r105", 105)]


def test_a_negative_end_joins_only_what_is_older() -> None:
    records = [("right", "k", f"r{time}", time) for time in (95, 98, 99, 100)]
    found = joined("join", *records, ("left", "k", "l", 100), within=JoinWindows(5, -2, grace=50))
    assert found == [("k", "l+r95", 100), ("k", "l+r98", 100)]


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_a_window_of_no_length_without_grace_joins_records_of_one_time(kind: str) -> None:
    found = joined(kind, ("left", "k", "l", 100), ("right", "k", "r", 100), within=JoinWindows(0, grace=0))
    assert found == [("k", "l+r", 100)]


# -- who is joined


def test_a_joiner_may_take_the_key() -> None:
    records = ("left", "k", "l", 1), ("right", "k", "r", 2), ("left", "k", "m", 3)
    found = joined("join", *records, within=WITHIN)
    assert found == [("k", "l+r", 2), ("k", "m+r", 3)]
    builder = StreamsBuilder()
    left, right = two(builder)
    left.join(right, lambda k, a, b: f"{k}:{pair(a, b)}", within=WITHIN, with_key=True).to("out")
    assert results(builder, *records) == [("k", "k:l+r", 2), ("k", "k:m+r", 3)]


def test_a_stream_is_joined_with_itself() -> None:
    builder = StreamsBuilder()
    left, _ = two(builder)
    left.join(left, pair, within=WITHIN).to("out")
    found = results(builder, ("left", "k", "a", 1), ("left", "k", "b", 2))
    assert found == [("k", "a+a", 1), ("k", "b+a", 2), ("k", "a+b", 2), ("k", "b+b", 2)]


def test_a_side_without_a_partner_is_sent_once_its_window_and_the_grace_are_over() -> None:
    records = ("left", "k", "l", 1), ("right", "j", "r", 2), ("right", "x", "y", 16)
    assert joined("left_join", *records) == []
    assert joined("left_join", *records, ("right", "x", "y", 17)) == [("k", "l+-", 1)]
    assert joined("outer_join", *records, ("right", "x", "y", 18)) == [("k", "l+-", 1), ("j", "-+r", 2)]


LATE = ("left", "x", "y", 50), ("left", "k", "l", 39), ("right", "k", "r", 45)
"""One whose window is over when it comes, with a grace that isn't, and its partner."""


@pytest.mark.parametrize("kind", ["left_join", "outer_join"])
def test_a_record_that_comes_when_its_window_is_over_waits_for_the_end_of_its_grace(kind: str) -> None:
    within = JoinWindows(10, grace=30)
    assert joined(kind, *LATE[:2], within=within) == []
    assert joined(kind, *LATE, within=within) == [("k", "l+r", 45)]
    ended = joined(kind, *LATE[:2], ("left", "x", "z", 79), ("left", "x", "z", 80), within=within)
    assert ended == [("k", "l+-", 39)]


@pytest.mark.parametrize("kind", ["left_join", "outer_join"])
def test_a_record_that_was_sent_without_a_partner_finds_none_later(kind: str) -> None:
    done = ("left", "k", "l", 1), ("left", "x", "y", 17), ("left", "x", "y", 18)
    of_its_own = [("k", "-+r", 2)] if kind == "outer_join" else []
    assert joined(kind, *done, ("right", "k", "r", 2)) == [("k", "l+-", 1), *of_its_own]


def test_a_record_later_than_the_grace_is_dropped_where_it_passes_a_partner_whose_time_is_over() -> None:
    builder = StreamsBuilder()
    left, right = two(builder)
    left.left_join(right, pair, within=WITHIN).to("out")
    with TopologyTestDriver(builder, default_key_serde=TEXT, default_value_serde=TEXT) as driver:
        inputs = {name: driver.create_input_topic(name) for name in ("left", "right")}
        for topic, key, time, dropped in (
            ("left", "k", 1, 0), ("left", "x", 18, 0),
            ("right", "k", 12, 0), ("right", "k", 11, 1), ("right", "j", 11, 1),
        ):  # fmt: skip
            inputs[topic].pipe(key, "v", timestamp=time)
            assert sum(task.dropped_records for task in driver._tasks) == dropped, (topic, key, time)


@pytest.mark.parametrize("kind", ["left_join", "outer_join"])
def test_as_kafka_streams_a_late_record_is_sent_at_once_and_again_with_its_partner(kind: str) -> None:
    def found(*records: tuple[str, Any, Any, int], grace: int) -> list[tuple[Any, ...]]:
        builder = StreamsBuilder()
        left, right = two(builder)
        getattr(left, kind)(right, pair, within=JoinWindows(10, grace=grace)).to("out")
        return results(builder, *records, stream_join_unmatched="at_once")

    assert found(*LATE, grace=30) == [("k", "l+-", 39), ("k", "l+r", 45)]
    done = ("left", "k", "l", 1), ("left", "x", "y", 17), ("right", "k", "r", 2)
    assert found(*done, grace=5) == [("k", "l+-", 1), ("k", "l+r", 2)]


Sides = tuple[str, str, str, int]


def sent_at(kind: str, within: JoinWindows, records: list[Sides], restarts: set[int]) -> list[list[tuple[Any, ...]]]:
    """What each record leads to. `restarts`: before which of them."""
    builder = StreamsBuilder()
    left, right = two(builder)
    getattr(left, kind)(right, pair, within=within).to("out")
    found = []
    with RestartingDriver(builder, default_key_serde=TEXT, default_value_serde=TEXT) as driver:
        out = driver.create_output_topic("out")
        for number, (topic, key, value, timestamp) in enumerate(records):
            if number in restarts:
                driver.restart()
            driver.create_input_topic(topic).pipe(key, value, timestamp=timestamp)
            found.append([record[:3] for record in out.read_records()])
    return found


def test_in_another_process_too_the_next_look_for_what_waits_comes_when_it_would_have() -> None:
    """A look notes the time of the last row that it has met, though earlier ones wait, as in Kafka Streams."""
    times = {"r": 5, "a": 8, "b": 10, "c": 11, "d": 14, "e": 16}
    records = [("right" if name == "r" else "left", name, name, time) for name, time in times.items()]
    within = JoinWindows(50, 0, grace=5)
    expected = sent_at("outer_join", within, records, set())
    assert expected == [[], [], [], [], [], [("a", "a+-", 8), ("b", "b+-", 10)]], "a's time was over by d"
    for number in range(len(records)):
        assert sent_at("outer_join", within, records, {number}) == expected


@pytest.mark.parametrize("seed", range(20))
def test_no_restart_moves_a_result_of_a_join_or_makes_another_one_of_it(seed: int) -> None:
    chance, now, records = random.Random(seed), 100, []
    kind = chance.choice(["left_join", "outer_join"])
    within = JoinWindows(chance.choice([0, 3, 20]), chance.choice([0, 5, 30]), grace=chance.choice([0, 4, 20]))
    for number in range(40):
        now += chance.choice([0, 1, 3, 5, 15, 30])
        time = now - chance.choice([0, 0, 1, 4, 14, 40, 120])
        records.append((chance.choice(["left", "right"]), chance.choice("aab"), str(number), max(0, time)))
    some = {number for number in range(40) if chance.random() < 0.3}
    expected = sent_at(kind, within, records, set())
    assert sent_at(kind, within, records, some) == expected
    assert sent_at(kind, within, records, set(range(40))) == expected


def test_equal_records_that_wait_are_all_sent_and_a_partner_ends_the_wait_of_all() -> None:
    waiting = ("left", "k", "a", 1), ("left", "k", "b", 1)
    assert joined("left_join", *waiting, ("left", "x", "y", 30)) == [("k", "a+-", 1), ("k", "b+-", 1)]
    found = joined("left_join", *waiting, ("right", "k", "r", 2), ("left", "x", "y", 30))
    assert found == [("k", "a+r", 2), ("k", "b+r", 2)]


def test_a_record_without_a_key_is_sent_alone_by_a_side_that_needs_no_partner() -> None:
    records = ("left", None, "l", 1), ("right", None, "r", 1), ("left", None, None, 1)
    assert joined("join", *records) == []
    assert joined("left_join", *records) == [(None, "l+-", 1)]
    assert joined("outer_join", *records) == [(None, "l+-", 1), (None, "-+r", 1)]


@pytest.mark.parametrize(("kind", "passes"), [("join", 0), ("left_join", 1), ("outer_join", 2)])
def test_null_keys_pass_the_repartition_topics_before_a_left_or_outer_join(kind: str, passes: int) -> None:
    builder = StreamsBuilder()
    left, right = two(builder)
    rekeyed = [side.select_key(lambda k, v: None) for side in (left, right)]
    getattr(rekeyed[0], kind)(rekeyed[1], pair, within=WITHIN).to("out")
    found = results(builder, ("left", "k", "l", 1), ("right", "k", "r", 1))
    assert found == [(None, "l+-", 1), (None, "-+r", 1)][:passes]


def test_key_and_value_serdes_are_those_of_stores_and_topics() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left", key=TEXT, value=TEXT), builder.stream("right", key=TEXT, value=TEXT)
    rekeyed = left.map(lambda k, v: (int(k), len(v)))
    others = right.map(lambda k, v: (int(k), float(v)))
    result = rekeyed.left_join(
        others, lambda a, b: f"{a}|{b}", within=WITHIN, key=LONG, value=serdes.INT, other_value=serdes.DOUBLE
    )
    result.to("out", key=LONG)
    with TopologyTestDriver(builder) as driver:
        for topic, key, value, time in (("left", "7", "abc", 1), ("left", "8", "abcd", 1), ("right", "7", "2.5", 2)):
            driver.create_input_topic(topic, key=TEXT, value=TEXT).pipe(key, value, timestamp=time)
        driver.create_input_topic("left", key=TEXT, value=TEXT).pipe("9", "", timestamp=100)
        found = driver.create_output_topic("out", key=LONG, value=TEXT).read_key_values()
    assert found == [(7, "3|2.5"), (8, "4|None")]


# -- stores and topics


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_join_keeps_its_records_where_it_is_told_to(in_memory: bool) -> None:
    builder = StreamsBuilder()
    left, right = two(builder)
    left.outer_join(right, pair, within=WITHIN, in_memory=in_memory, store="s").to("out")
    (sub,) = subs(builder)
    assert {spec.persistent for spec in sub.stores} == {not in_memory}
    assert sorted(sub.changelogs.values()) == [
        "app-s-outer-other-join-store-changelog", "app-s-outer-shared-join-store-changelog",
        "app-s-outer-this-join-store-changelog",
    ]  # fmt: skip
    records = ("left", "k", "l", 1), ("right", "k", "r", 2), ("left", "j", "m", 3), ("left", "x", "y", 90)
    found = results(builder, *records, persistent=True)
    assert found == [("k", "l+r", 2), ("j", "m+-", 3)]


def test_changelogs_of_records_are_deleted_from_and_those_of_waiting_ones_compacted() -> None:
    builder = StreamsBuilder()
    left, right = two(builder)
    left.left_join(right, pair, within=WITHIN, changelog_config={"cleanup.policy": "compact", "segment.ms": "5"})
    (sub,) = subs(builder)
    settings = [changelog_settings(spec, {}) for spec in sorted(sub.stores, key=lambda spec: spec.duplicates)]
    waiting, *records = settings
    assert (waiting["cleanup.policy"], waiting["segment.ms"]) == ("compact", "5")
    for each in records:
        kept = {"cleanup.policy": "delete", "segment.ms": "5", "retention.ms": "-1", "retention.bytes": "-1"}
        assert kept.items() <= each.items()


def test_without_logging_there_are_no_changelogs() -> None:
    builder = StreamsBuilder()
    left, right = two(builder)
    left.outer_join(right, pair, within=WITHIN, logging=False)
    (sub,) = subs(builder)
    assert (len(sub.stores), sub.changelogs) == (3, {})


def test_the_topics_of_both_sides_need_equal_partition_counts() -> None:
    builder = StreamsBuilder()
    left, right = two(builder)
    third = builder.stream("third")
    left.select_key(lambda k, v: v, name="rekey").join(right.merge(third), pair, within=WITHIN)
    left.join(left, pair, within=WITHIN)
    groups = {group for sub in subs(builder) for group in sub.copartition_groups}
    assert groups == {frozenset({"app-rekey-repartition", "right", "third"})}


def test_joins_without_a_name_share_the_repartition_topic_of_a_stream() -> None:
    builder = StreamsBuilder()
    left, right = two(builder)
    rekeyed = left.select_key(lambda k, v: v, name="rekey")
    rekeyed.join(right, pair, within=WITHIN)
    rekeyed.left_join(right, pair, within=WITHIN)
    rekeyed.join(right, pair, within=WITHIN, name="named")
    topics = {topic for sub in subs(builder) for topic in sub.repartition_topics}
    assert topics == {"app-rekey-repartition", "app-named-left-repartition"}


# -- slips


def test_a_join_without_windows_or_with_something_else_is_refused() -> None:
    builder = StreamsBuilder()
    left, right = two(builder)
    with pytest.raises(TopologyError, match=r"needs within=JoinWindows\(...\), how far apart .*, not None"):
        left.join(right, pair)
    with pytest.raises(TopologyError, match=r"not 5"):
        left.join(right, pair, within=5)
    with pytest.raises(TopologyError, match=r"a stream has no outer join with a table"):
        left.outer_join(builder.table("t"), pair, within=WITHIN)
    with pytest.raises(TopologyError, match=r"an operator needs a function, not 'pair'"):
        left.left_join(right, "pair", within=WITHIN)
    with pytest.raises(TopologyError, match=r"other_value must be a Serde"):
        left.join(right, pair, within=WITHIN, other_value="str")
    with pytest.raises(TopologyError, match=r"a store can't be named 'a b'"):
        left.join(right, pair, within=WITHIN, store="a b")
    with pytest.raises(TypeError, match=r"caching"):
        left.join(right, pair, within=WITHIN, caching=True)


def test_streams_of_two_builders_are_not_joined() -> None:
    left, _ = two(StreamsBuilder())
    _, right = two(StreamsBuilder())
    with pytest.raises(TopologyError, match=r"belong to two StreamsBuilders"):
        left.join(right, pair, within=WITHIN)


@pytest.mark.parametrize("with_key", [False, True])
def test_a_joiner_of_other_arguments_is_refused_when_the_topology_is_built(with_key: bool) -> None:
    builder = StreamsBuilder()
    left, right = two(builder)
    joiner: Any = pair if with_key else lambda k, a, b: ""
    left.join(right, joiner, within=WITHIN, with_key=with_key)
    with pytest.raises(TopologyError, match=rf"is called with {2 + with_key} arguments"):
        builder.build()


def test_a_coroutine_function_joins_nothing() -> None:
    async def joiner(left: Any, right: Any) -> Any:
        return left, right

    builder = StreamsBuilder()
    left, right = two(builder)
    left.join(right, joiner, within=WITHIN)
    with pytest.raises(TopologyError, match=r"joiner"):
        builder.build()


def grouped_by(name: str, grouped: Any) -> None:
    """An aggregation that keeps "a+-" as long as nothing comes to it."""

    def once(_aggregate: str, _value: str) -> None: ...

    if name == "sessions":
        grouped.windowed_by(SessionWindows(5, grace=100)).count("kept")
    elif name == "windows":
        grouped.windowed_by(TimeWindows(100, grace=100)).reduce(once, "kept")
    elif name == "sliding windows":
        grouped.windowed_by(SlidingWindows(100, grace=100)).reduce(once, "kept")
    else:
        grouped.reduce(once, "kept")


@pytest.mark.parametrize("name", ["sessions", "windows", "sliding windows", "no windows"])
def test_what_follows_from_a_record_without_a_partner_is_logged_with_its_time(name: str) -> None:
    """Not with that of the record by which the join knew. Sliding windows log the last value of a key."""
    builder = StreamsBuilder()
    left, right = two(builder)
    grouped_by(name, left.left_join(right, pair, within=WITHIN).group_by_key())
    with TopologyTestDriver(builder, default_key_serde=TEXT, default_value_serde=TEXT) as driver:
        topic = driver.create_input_topic("left")
        for key, time in (("k", 5), ("k", 6), ("other", 90)):
            topic.pipe(key, "a", timestamp=time)
        (changelog,) = [outputs for name, outputs in driver.produced().items() if name.endswith("-kept-changelog")]
    times = {output.timestamp for output in changelog}
    assert times == ({6} if name == "sliding windows" else {5, 6})
    assert any(output.value is None for output in changelog)


def test_a_window_that_ends_before_time_0_has_the_partners_of_time_0_as_in_kafka_streams() -> None:
    within = JoinWindows(20, grace=5).after(-3)
    assert joined("join", ("right", "k", "r", 0), ("left", "k", "l", 1), within=within) == [("k", "l+r", 1)]


def test_a_joiner_that_changes_its_values_does_so_to_none_of_the_next_result() -> None:
    def both(left: list[str], right: list[str]) -> list[str]:
        left += right
        return left

    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=TEXT, value=serdes.JSON) for topic in ("left", "right"))
    left.join(right, both, within=WITHIN).map_values(str).to("out", value=TEXT)
    with TopologyTestDriver(builder, default_key_serde=TEXT, default_value_serde=TEXT) as driver:
        for topic, value in (("right", ["a"]), ("right", ["b"]), ("left", ["l"])):
            driver.create_input_topic(topic, value=serdes.JSON).pipe("k", value, timestamp=1)
        assert driver.create_output_topic("out").read_values() == ["['l', 'a']", "['l', 'b']"]
