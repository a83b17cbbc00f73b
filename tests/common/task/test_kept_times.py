"""The times of a task in the metadata of its committed offsets: they fit, they go on, none is handed on for ever."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from milestones import StreamsBuilder, TimeWindows, Topology, serdes
from milestones.common.records import TopicPartition
from milestones.common.state.times import is_time, time_name
from milestones.common.task.metadata import MAX_BYTES, OffsetMetadata
from tests.common.task.harness import Harness
from tests.common.task.test_metadata import LONGEST_ID

TEXT = serdes.STRING
IN = TopicPartition("in", 0)


def windowed(operators: int) -> Topology:
    """So many counts, each of one key's records; what is late goes to `late`."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    for number in range(operators):
        kept = stream.filter(lambda key, _, mine=str(number): key == mine).group_by_key()
        kept.windowed_by(TimeWindows(10, grace=0), on_late=lambda late: late.to("late")).count(f"counts-{number}")
    return builder.build()


def task_of(operators: int, metadata: str = "") -> Harness:
    return Harness(windowed(operators), transactional_id=LONGEST_ID).start({IN: metadata})


def kept(task: Harness) -> str:
    task.outputs()
    return task.commit().metadata[IN]


def late(task: Harness, *records: tuple[str, str, int]) -> list[bytes | None]:
    task.pipe(*records)
    return [value for topic, _, value, _ in task.outputs() if topic == "late"]


def test_the_times_of_sixty_windowed_operators_and_their_stores_fit_whatever_the_ids_are() -> None:
    task = task_of(60)
    task.pipe(*((str(number), "v", 1_000 + number) for number in range(60)))
    text = kept(task)
    times = [time for name, time in OffsetMetadata.decode(text).others.items() if is_time(name)]
    assert len(times) == 120, "each has its own"
    assert len(text) <= MAX_BYTES
    again = task_of(60, text)
    assert late(again, *((str(number), f"late {number}", 900) for number in range(60))) == [
        b"late %d" % number for number in range(60)
    ]


def test_more_times_than_have_room_share_some_and_no_record_in_time_is_late_by_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    operators = 200
    task = task_of(operators)
    assert f"have {2 * operators} times" in caplog.text
    task.pipe(*((str(number), "v", 1_000 + 100 * number) for number in range(operators)))
    text = kept(task)
    assert len(text) <= MAX_BYTES
    again = task_of(operators, text)
    in_time = [(str(number), "in time", 1_000 + 100 * number) for number in range(operators)]
    assert late(again, *in_time) == []
    too_late = [(str(number), "late", 1) for number in range(operators)]
    assert late(task_of(operators, text), *too_late) == [b"late"] * operators


def test_a_time_of_an_operator_that_is_no_more_isnt_handed_on() -> None:
    others = {time_name("an operator of the former topology"): 50, "of Kafka Streams": 9}
    task = task_of(1, OffsetMetadata(5, others=others).encode())
    assert OffsetMetadata.decode(kept(task)).others == {"of Kafka Streams": 9}


def test_what_kafka_streams_hands_on_is_where_times_go_on() -> None:
    """It merges the entries of a task's partitions by the highest of each name, and writes all of them with each commit
    of its own, beside its own stream time."""
    task = task_of(1)
    task.pipe(("0", "v", 1_000))
    of_java = replace(OffsetMetadata.decode(kept(task)), stream_time=2_000).encode()
    again = task_of(1, of_java)
    assert late(again, ("0", "late", 900), ("0", "in time", 1_500)) == [b"late"]


def test_a_damaged_entry_costs_the_times_and_not_the_start() -> None:
    damaged = base64.b64encode(base64.b64decode(kept(task_of(1)))[:-3]).decode()
    assert late(task_of(1, damaged), ("0", "v", 1)) == []
