"""Records that come too late for all of their windows: `windowed_by(..., on_late=...)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from milestones import SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, Topology, TopologyError, serdes
from milestones.common.records import TopicPartition
from milestones.common.state.times import is_time
from milestones.common.task.metadata import OffsetMetadata
from milestones.common.topology.handlers import LogAndContinue
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness, message

TEXT = serdes.STRING
WINDOWS: dict[str, Any] = {
    "tumbling": TimeWindows(10, grace=5),
    "hopping": TimeWindows(10, advance=5, grace=5),
    "sliding": SlidingWindows(10, grace=5),
    "sessions": SessionWindows(10, grace=5),
}
Late = tuple[str, str, int]
Metadata = Mapping[TopicPartition, str]


def counting(windows: Any, emit: Any = "on_update", on_late: Any = None, name: str | None = None) -> StreamsBuilder:
    builder = StreamsBuilder()
    late = on_late or (lambda stream: stream.to("late", key=TEXT, value=TEXT))
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    counts = grouped.windowed_by(windows, emit=emit, on_late=late).count("counts", name=name)
    counts.to_stream(lambda window, _: f"{window.key}@{window.start}").map_values(str).to("out", key=TEXT, value=TEXT)
    return builder


def taken(topology: Any, *records: Late, **settings: Any) -> tuple[list[Late], list[str]]:
    """The late records, and the keys of the windows in "out"."""
    with TopologyTestDriver(topology, **settings) as driver:
        for key, value, time in records:
            driver.create_input_topic("in", key=TEXT, value=TEXT).pipe(key, value, timestamp=time)
        late = driver.create_output_topic("late", key=TEXT, value=TEXT).read_records()
        results = driver.create_output_topic("out", key=TEXT, value=TEXT).read_key_values()
        return [(row.key, row.value, row.timestamp) for row in late], [key for key, _ in results]


@pytest.mark.parametrize("emit", ["on_update", "on_close"])
@pytest.mark.parametrize("kind", WINDOWS)
def test_a_record_that_no_window_takes_goes_to_the_stream_of_late_records(kind: str, emit: str) -> None:
    records = [("a", "1", 3), ("b", "2", 100), ("a", "too late", 4), ("b", "in time", 92)]
    late, _ = taken(counting(WINDOWS[kind], emit), *records)
    assert late == [("a", "too late", 4)]


def test_no_late_record_is_counted_and_no_counted_record_is_late() -> None:
    for kind, windows in WINDOWS.items():
        records = [("k", str(n), time) for n, time in enumerate((5, 60, 7, 44, 45, 46, 49, 50, 61, 20, 75, 55, 60, 61))]
        with_late, with_out = taken(counting(windows), *records)
        assert with_late, kind
        kept = [record for record in records if record not in with_late]
        assert taken(counting(windows), *kept) == ([], with_out), kind


def test_a_record_that_one_of_its_windows_takes_is_not_late() -> None:
    late, windows = taken(counting(WINDOWS["hopping"]), ("a", "1", 20), ("a", "2", 11), ("a", "3", 4))
    assert late == [("a", "3", 4)]
    assert windows == ["a@15", "a@20", "a@10"]


def test_late_records_keep_their_headers_and_can_be_processed_on() -> None:
    def on_late(stream: Any) -> None:
        stream.filter(lambda key, _: key == "a").map_values(str.upper).to("late", key=TEXT, value=TEXT)

    with TopologyTestDriver(counting(WINDOWS["tumbling"], on_late=on_late)) as driver:
        source = driver.create_input_topic("in", key=TEXT, value=TEXT)
        source.pipe("a", "x", timestamp=100)
        for key in "ab":
            source.pipe(key, "late", timestamp=1, headers=[("h", b"1")])
        (record,) = driver.create_output_topic("late", key=TEXT, value=TEXT).read_records()
        assert (record.key, record.value, record.timestamp, record.headers) == ("a", "LATE", 1, [("h", b"1")])


def test_each_aggregation_has_late_records_of_its_own() -> None:
    builder, topics = StreamsBuilder(), iter(("one", "two"))
    windowed = builder.stream("in", key=TEXT, value=TEXT).group_by_key().windowed_by(
        WINDOWS["tumbling"], on_late=lambda late: late.to(next(topics))
    )  # fmt: skip
    windowed.count("counts")
    windowed.reduce(max, "highest")
    with TopologyTestDriver(builder) as driver:
        for time in (100, 1):
            driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("a", "x", timestamp=time)
        assert [len(driver.produced()[topic]) for topic in ("one", "two")] == [1, 1]


def test_without_it_a_topology_is_kafka_streams_own_and_with_it_no_name_changes() -> None:
    for name in (None, "counting"):
        texts = [str(counting(WINDOWS["tumbling"], name=name, on_late=on_late).build().describe())
                 for on_late in (lambda _: None, None)]  # fmt: skip
        node = name or "KSTREAM-AGGREGATE-0000000001"
        assert all(f"Processor: {node}-late (stores: [])" in text for text in texts)
        assert f"--> KTABLE-TOSTREAM-0000000002, {node}-late" in texts[0] or f"--> {node}-late, KTABLE" in texts[0]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TopologyError, match="an operator needs a function, not 'late'"):
        counting(WINDOWS["tumbling"], on_late="late")


# -- in a task's life


def failing(late: Any) -> None:
    def refuse(_key: str, value: str) -> None:
        if value == "fail":
            raise RuntimeError(value)

    late.peek(refuse).to("late", key=TEXT, value=TEXT)


def life(former: Harness | None = None) -> Harness:
    topology: Topology = counting(WINDOWS["tumbling"], "on_close", failing).build()
    made = Harness(topology, processing_handler=LogAndContinue(), transactional_id="tx")
    if former is not None:
        made.state = former.state
    return made


def late_of(task: Harness, *records: Late) -> list[bytes]:
    task.pipe(*records)
    return [value for topic, _, value, _ in task.outputs() if topic == "late"]


def test_a_late_record_that_fails_sends_nothing_and_the_next_one_does() -> None:
    task = life().start()
    assert late_of(task, ("a", "1", 100), ("a", "fail", 1), ("a", "late", 2)) == [b"late"]


def test_a_roll_back_decides_again_what_is_late() -> None:
    task = life().start()
    task.pipe(("a", "1", 5))
    task.commit()
    assert late_of(task, ("a", "2", 100), ("a", "3", 1)) == [b"3"]
    task.task.roll_back()
    task.go_on()
    assert late_of(task, ("a", "3", 1)) == []


def closed_and_open_again(former: Harness, metadata: Metadata) -> Harness:
    former.task.close()
    return life(former).start(metadata)


def restored(former: Harness, metadata: Metadata) -> Harness:
    task = life()
    task.task.open()
    for store, topic in task.task.subtopology.changelogs.items():
        sent = [row for row in former.sent if row.topic == topic]
        batch = [message(at, row.key, row.value, row.timestamp, topic) for at, row in enumerate(sent)]
        task.task.restore(store, batch, len(batch))
    task.task.start(dict.fromkeys(task.task.partitions, 0), metadata)
    return task


AGAIN = pytest.mark.parametrize("again", [closed_and_open_again, restored])


@AGAIN
def test_after_a_restart_late_is_what_was_late_before(again: Callable[[Harness, Metadata], Harness]) -> None:
    task = life().start()
    assert late_of(task, ("a", "1", 100), ("a", "2", 1)) == [b"2"]
    metadata = task.commit().metadata
    assert late_of(again(task, metadata), ("b", "3", 50), ("b", "4", 99), ("b", "5", 1)) == [b"3", b"5"]


@AGAIN
def test_an_emitted_window_is_closed_also_where_a_commit_has_no_more_than_its_emission(
    again: Callable[[Harness, Metadata], Harness],
) -> None:
    """As a former release leaves it, and Kafka Streams."""
    task = life().start()
    task.pipe(("a", "1", 5), ("a", "2", 30))
    ((partition, text),) = task.commit().metadata.items()
    kept = {name: time for name, time in OffsetMetadata.decode(text).others.items() if not is_time(name)}
    successor = again(task, {partition: OffsetMetadata(30, others=kept).encode()})
    assert late_of(successor, ("a", "late", 9), ("a", "in time", 29)) == [b"late"]


def test_a_roll_back_in_place_returns_to_the_time_of_the_commit() -> None:
    task = life().start()
    task.pipe(("a", "1", 100))
    task.commit()
    task.pipe(("a", "2", 1_000))
    task.task.roll_back()
    task.go_on()
    assert late_of(task, ("a", "in time", 95), ("a", "late", 1)) == [b"late"]


def test_a_roll_back_that_another_process_goes_on_from_has_the_time_of_the_commit() -> None:
    task = life().start()
    task.pipe(("a", "1", 100))
    metadata = task.commit().metadata
    task.pipe(("a", "2", 1_000))
    task.task.roll_back()
    assert late_of(restored(task, metadata), ("a", "in time", 95), ("a", "late", 1)) == [b"late"]


# -- what is dropped


@pytest.mark.parametrize("kind", WINDOWS)
def test_what_the_stream_of_late_records_gets_isnt_dropped(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    task = Harness(counting(WINDOWS[kind]).build()).start()
    assert late_of(task, ("a", "1", 100), ("a", "late", 1)) == [b"late"]
    assert (task.task.dropped_records, caplog.messages) == (0, [])


def test_what_only_some_windows_of_a_record_have_missed_is_dropped_for_them() -> None:
    task = Harness(counting(WINDOWS["hopping"]).build()).start()
    assert late_of(task, ("a", "1", 20), ("a", "2", 11)) == []
    assert task.task.dropped_records == 1
