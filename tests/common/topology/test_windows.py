"""Windowed aggregations: what a user may rely on beside Kafka Streams' own results (`python -m compat_tests.java`)."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from milestones import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windowed
from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.partitioner import partition_of
from milestones.common.records import KEY, TOPIC, VALUE, TopicPartition
from milestones.common.state.times import is_time
from milestones.common.task.metadata import OffsetMetadata, OffsetMetadataError
from milestones.common.topology import StreamsBuilder, Topology
from milestones.common.topology.handlers import LogAndContinue
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness, named

TEXT, LONG = serdes.STRING, serdes.LONG
IN = TopicPartition("in", 0)
SIZE, GRACE = 10, 5

KINDS = {
    "tumbling": TimeWindows(SIZE, grace=GRACE),
    "hopping": TimeWindows(SIZE, grace=GRACE, advance=3),
    "sliding": SlidingWindows(SIZE, grace=GRACE),
    "session": SessionWindows(SIZE, grace=GRACE),
}


def text(key: Windowed[str], value: Any) -> str:
    if key.key == "bad":
        raise ValueError("a bad key")
    return f"{key.key}@{key.start}-{key.end}"


def counting(windows: Any, emit: Any = "on_update", **options: Any) -> Topology:
    """Counts, as text. The key "bad" fails behind the windows."""
    builder = StreamsBuilder()
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by_key().windowed_by(windows, emit=emit)
    updates = counts.count("counts", **options).to_stream(text)
    updates.map_values(lambda count: None if count is None else str(count)).to("out", key=TEXT, value=TEXT)
    return builder.build()


def records(seed: int, count: int = 60) -> list[tuple[str, str, int]]:
    """In time, out of time, late."""
    chance, now, made = random.Random(seed), 100, []
    for _ in range(count):
        now += chance.choice([0, 1, 1, 3, 12, 30])
        made.append((chance.choice("ab"), "v", now - chance.choice([0, 0, 0, 2, 9, 40])))
    return made


def given(harness: Harness) -> list[tuple[Any, ...]]:
    return [output for output in harness.outputs() if output[0] == "out"]


@pytest.mark.parametrize("emit", ["on_update", "on_close"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_roll_back_at_any_record_changes_no_result(kind: str, emit: str, seed: int) -> None:
    made = records(seed)
    whole = Harness(counting(KINDS[kind], emit)).start()
    whole.pipe(*made)
    expected = given(whole)
    again = Harness(counting(KINDS[kind], emit), transactional_id="app").start()
    assert again.pipe_in_parts(made, random.Random(seed), given) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_fails_leaves_no_window_and_no_time_behind(kind: str) -> None:
    """What comes after a skipped record isn't late for its sake."""
    harness = Harness(counting(KINDS[kind]), processing_handler=LogAndContinue()).start()
    harness.pipe(("a", "v", 100), ("bad", "v", 5_000), ("a", "v", 101))
    assert {output[1][:2] for output in given(harness)} == {b"a@"}
    assert given(harness) == []
    harness.commit()
    assert {key for key in harness.engine("counts") if b"bad" in key} == set()
    assert harness.task.dropped_records == 1, "the skipped one; none is late"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_window_is_emitted_once_when_it_closes_whatever_process_goes_on(kind: str, seed: int) -> None:
    made = records(seed, 80)
    whole = Harness(counting(KINDS[kind], "on_close")).start()
    whole.pipe(*made)
    expected = Counter(output[1] for output in given(whole))
    assert expected
    assert set(expected.values()) == {1}
    first = Harness(counting(KINDS[kind], "on_close")).start()
    first.pipe(*made[:40])
    found = given(first)
    metadata = first.commit().metadata
    # Another process: the committed offsets, the stores, and nothing else.
    second = Harness(counting(KINDS[kind], "on_close"))
    second.task.open()
    namespace = {"counts": first.engine("counts")}
    second.state.apply(namespace, {"counts": 1})
    second.task.start({IN: 40}, metadata)
    second.ends["in"] = 40
    second.pipe(*made[40:])
    found += given(second)
    emitted = Counter(output[1] for output in found)
    assert set(emitted.values()) == {1}
    assert expected == emitted


def test_how_far_windows_are_emitted_is_under_the_store_s_name_in_the_committed_offsets() -> None:
    harness = Harness(counting(KINDS["tumbling"], "on_close")).start()
    harness.pipe(("a", "v", 100), ("a", "v", 200))
    metadata = OffsetMetadata.decode(harness.commit().metadata[IN])
    assert metadata.others["counts"] == 195
    assert all(is_time(name) for name in metadata.others.keys() - {"counts"})


def test_more_marks_than_the_committed_offsets_take_are_an_error_at_the_start() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    for number in range(40):
        stream.windowed_by(KINDS["tumbling"], emit="on_close").count(f"{'counts-' * 15}{number}")
    with pytest.raises(OffsetMetadataError, match="Kafka takes 4096"):
        Harness(builder.build()).start()


def test_late_records_are_dropped_and_counted() -> None:
    harness = Harness(counting(KINDS["tumbling"])).start()
    harness.pipe(("a", "v", 100), ("a", "v", 116), ("a", "v", 105), ("a", "v", 112))
    assert [output[1:3] for output in given(harness)] == [
        (b"a@100-110", b"1"), (b"a@110-120", b"1"), (b"a@110-120", b"2"),
    ]  # fmt: skip
    assert harness.task.dropped_records == 1


def test_a_filter_before_the_windows_keeps_time_from_them() -> None:
    """Late is what the operator has seen, not what the task has."""
    builder = StreamsBuilder()
    kept = builder.stream("in", key=TEXT, value=TEXT).filter(lambda key, _: key == "a").group_by_key()
    kept.windowed_by(KINDS["tumbling"]).count().to_stream(text).to("out", key=TEXT, value=LONG)
    harness = Harness(builder.build()).start()
    harness.pipe(("a", "v", 100), ("b", "v", 10_000), ("a", "v", 101))
    assert [output[1] for output in given(harness)] == [b"a@100-110", b"a@100-110"]


def test_windowed_keys_are_written_and_read_with_their_windows() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by_key().windowed_by(KINDS["tumbling"]).count()
    counts.to_stream().to("out", value=LONG)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("a", "v", timestamp=105)
        (output,) = driver.produced()["out"]
    assert output.key == b"a" + (100).to_bytes(8, "big")


def test_a_cached_aggregation_sends_the_last_update_of_each_window_at_the_commit() -> None:
    harness = Harness(counting(KINDS["tumbling"]), cache_max_bytes=1 << 20).start()
    harness.pipe(("a", "v", 100), ("a", "v", 101), ("a", "v", 112))
    assert harness.outputs() == []
    commit = harness.commit()
    sent = [(output[KEY], output[VALUE]) for output in commit.all_outputs() if output[TOPIC] == "out"]
    assert sent == [(b"a@100-110", b"2"), (b"a@110-120", b"1")]


@pytest.mark.parametrize("grace", [0, 5])
def test_sessions_without_a_gap_have_the_records_of_one_key_and_time(grace: int) -> None:
    builder = StreamsBuilder()
    table = builder.stream("i", key=str, value=str).group_by_key().windowed_by(SessionWindows(0, grace=grace)).count()
    table.to_stream(lambda window, _: f"{window.key}@{window.start}-{window.end}").to("o", key=str, value=int)
    with TopologyTestDriver(builder) as driver:
        topic = driver.create_input_topic("i", key=str, value=str)
        for timestamp in (100, 100, 101, 103):
            topic.pipe("a", "", timestamp=timestamp)
        found = driver.create_output_topic("o", key=str, value=int).read_key_values()
    assert found == [("a@100-100", 1), ("a@100-100", 2), ("a@101-101", 1), ("a@103-103", 1)]


@pytest.mark.parametrize(
    ("retention", "joined"), [(15, [("a@893-893", 1)]), (1_000, [("a@884-893", 2)])]
)
def test_a_record_in_time_makes_a_session_that_was_sent_longer_only_while_the_store_has_it(
    retention: int, joined: list[tuple[str, int]]
) -> None:
    """As in Kafka Streams: the longer session is another one."""
    builder = StreamsBuilder()
    windowed = builder.stream("i", key=str, value=str).group_by_key().windowed_by(
        SessionWindows(10, grace=0), emit="on_close"
    )  # fmt: skip
    counts = windowed.count("counts", retention=retention).to_stream(lambda one, _: f"{one.key}@{one.start}-{one.end}")
    counts.to("o", key=str, value=int)
    with TopologyTestDriver(builder) as driver:
        topic = driver.create_input_topic("i", key=str, value=str)
        for key, timestamp in (("a", 884), ("b", 900), ("a", 893), ("b", 2_000)):
            topic.pipe(key, "", timestamp=timestamp)
        found = driver.create_output_topic("o", key=str, value=int).read_key_values()
    assert found == [("a@884-884", 1), *joined, ("b@900-900", 1)]


def test_durations_may_be_timedeltas() -> None:
    windows = TimeWindows(timedelta(minutes=5), grace=timedelta(seconds=30), advance=timedelta(minutes=1))
    assert (windows.size_ms, windows.grace_ms, windows.advance_ms) == (300_000, 30_000, 60_000)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TimeWindows(0, grace=0), "size of a window must be at least 1 ms"),
        (lambda: TimeWindows(10, grace=-1), "grace must be at least 0 ms"),
        (lambda: TimeWindows(10, grace=0, advance=11), "would leave records out"),
        (lambda: TimeWindows("10", grace=0), "must be a timedelta or a number of ms"),  # type: ignore[arg-type]
        (lambda: SessionWindows(-1, grace=0), "gap between sessions must be at least 0 ms"),
        (lambda: SlidingWindows(0, grace=0), "difference of sliding windows must be at least 1 ms"),
        (lambda: UnlimitedWindows(-5), "can't start at -5"),
        (lambda: counting(UnlimitedWindows(), "on_close"), "never closes"),
        (lambda: counting(KINDS["tumbling"], "at the end"), "emit must be 'on_update' or 'on_close'"),
        (lambda: counting(10), "needs TimeWindows, SlidingWindows"),
        (lambda: counting(KINDS["tumbling"], retention=14), "retention of 14 ms is shorter than window and grace, 15"),
    ],
)
def test_what_can_never_work_is_refused_when_it_is_written(make: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        make()


def test_only_sessions_take_a_merger_and_need_one() -> None:
    grouped = StreamsBuilder().stream("in").group_by_key()
    with pytest.raises(TopologyError, match="give aggregate a merger"):
        grouped.windowed_by(KINDS["session"]).aggregate(int, lambda key, value, so_far: so_far)
    with pytest.raises(TopologyError, match="these windows take no merger"):
        grouped.windowed_by(KINDS["sliding"]).aggregate(
            int, lambda key, value, so_far: so_far, lambda key, one, other: one
        )


def test_windows_that_are_emitted_when_they_close_are_not_cached() -> None:
    (sub,) = counting(KINDS["tumbling"], "on_close").resolve("app")
    assert [spec.cached for spec in sub.stores] == [False]


def places(windows: Any, keys: str, **sink: Any) -> dict[str, set[int]]:
    """The partitions, of three, to which each key's counts go; -1 where the producer chooses."""
    builder = StreamsBuilder()
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by_key().windowed_by(windows).count()
    counts.to_stream().to(**{"topic": "out", **sink})
    harness = Harness(builder.build()).start()
    harness.pipe(*((key, "v", at) for at in range(100, 200, 9) for key in keys))
    found: dict[str, set[int]] = {}
    for output in named(harness.task.take_outputs()):
        if output.topic == "out" and output.key is not None:
            found.setdefault(output.key[:1].decode(), set()).add(output.partition)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topic", ["out", lambda *_: "out"], ids=["a topic", "a topic by record"])
def test_all_windows_of_a_key_go_to_the_partition_of_the_key_without_its_window(kind: str, topic: Any) -> None:
    keys = "abcdef"
    found = places(KINDS[kind], keys, topic=topic)
    assert found == {key: {partition_of(key.encode(), 3)} for key in keys}
    assert len({*map(str, found.values())}) == 3


def test_a_partitioner_of_ones_own_is_given_the_windowed_key() -> None:
    given_to: set[type] = set()
    found = places(KINDS["session"], "ab", partitioner=lambda _topic, key, _value, _: given_to.add(type(key)) or 2)
    assert (found, given_to) == ({"a": {2}, "b": {2}}, {Windowed})
