"""What a task promises about records: their order, their time, and what is left of one that fails."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import ProcessingError, StateError
from milestones.common.records import TopicPartition
from milestones.common.task.task import TaskState
from milestones.common.topology import timestamps
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import Harness, forward, forwarding, keeping, named, processing

IN = TopicPartition("in", 0)
SKIP = LogAndContinue()
DEAD_LETTERS = LogAndContinue("dead")


# -- records


def test_records_are_processed_in_offset_order() -> None:
    h = forwarding()
    assert h.pipe(("k", "a", 3), ("k", "b", 1), ("k", "c", 2)) == 3
    assert [value for _, _, value, _ in h.outputs()] == [b"a", b"b", b"c"]


def test_process_stops_at_its_limit_and_goes_on_there() -> None:
    h = forwarding()
    h.feed(("k", "a", 1), ("k", "b", 1), ("k", "c", 1))
    assert (h.run(2), h.task.input.waiting(), h.task.input.position(IN)) == (2, 1, 2)
    assert (h.run(2), h.task.input.waiting(), h.run(2)) == (1, 0, 0)


def test_stream_time_is_the_highest_timestamp_seen_the_record_in_work_included() -> None:
    seen: list[int] = []
    h = Harness(processing(lambda context, record: seen.append(context.current_stream_time_ms()))).start()
    h.pipe(("k", "v", 5), ("k", "v", 3), ("k", "v", 8))
    assert (seen, h.task.stream_time) == ([5, 5, 8], 8)


def test_buffered_bytes_grow_with_values_and_return_to_zero() -> None:
    h = forwarding()
    h.feed(("k", "x" * 10_000, 1), ("k", "y", 1))
    full = h.task.input.bytes()
    h.run(1)
    assert full > 10_000 > 0 < h.task.input.bytes() < full
    h.run()
    assert h.task.input.bytes() == 0


# -- records that fail


def test_a_failed_record_leaves_the_task_at_its_last_boundary_and_is_the_next_one_again() -> None:
    h = keeping()
    with pytest.raises(ProcessingError, match=r"task 0_0, node worker, record in-0@1: RuntimeError: user code"):
        h.pipe(("a", "1", 10), ("b", "fail", 99))
    reached = (h.task.input.position(IN), h.task.stream_time, h.task.input.waiting())
    assert (reached, h.task.state) == ((1, 10, 1), TaskState.READY)
    assert [key for _, key, _, _ in h.outputs()] == [b"a", b"a"]
    with pytest.raises(ProcessingError):
        h.run()
    assert h.commit().offsets == {IN: 1}
    assert h.engine("store") == {b"a": b"1"}


def test_a_skipped_record_leaves_nothing_but_its_offset_and_a_count() -> None:
    h = keeping(processing_handler=SKIP)
    assert h.pipe(("a", "1", 1), ("a", "fail", 2), ("b", "2", 3)) == 3
    assert [(topic, value) for topic, _, value, _ in h.outputs() if topic == "out"] == [("out", b"1"), ("out", b"2")]
    h.commit()
    assert (h.engine("store"), h.task.dropped_records) == ({b"a": b"1", b"b": b"2"}, 1)


def test_a_dead_letter_is_in_the_same_boundary_as_the_skipped_offset() -> None:
    h = keeping(processing_handler=DEAD_LETTERS)
    h.pipe(("a", "fail", 7))
    commit = h.task.freeze()
    (letter,) = named(commit.all_outputs())
    assert (letter.topic, letter.key, letter.value, letter.timestamp) == ("dead", b"a", b"fail", 7)
    assert dict(letter.headers)["__streams.errors.offset"] == b"0"
    assert commit.offsets == {IN: 1}


@pytest.mark.parametrize(("timestamp", "written"), [(5, 5), (-1, 1_000_000)], ids=["as it came", "that of now"])
def test_a_record_that_cant_be_read_goes_to_the_deserialisation_handler(timestamp: int, written: int) -> None:
    h = Harness(processing(forward, value=serdes.LONG), deserialization_handler=DEAD_LETTERS).start()
    assert h.pipe(("a", b"\xff\xff", timestamp)) == 1
    assert h.outputs() == [("dead", b"a", b"\xff\xff", written)]
    assert (h.task.input.position(IN), h.task.stream_time) == (1, -1)


def test_a_record_that_cant_be_read_stops_the_task_by_default() -> None:
    h = Harness(processing(forward, value=serdes.LONG)).start()
    with pytest.raises(ProcessingError, match=r"node source, record in-0@0.*set deserialization_exception_handler"):
        h.pipe(("a", b"\xff", 5))
    assert (h.task.input.position(IN), h.task.input.waiting()) == (0, 1)


def test_an_output_that_its_serde_refuses_goes_to_the_production_handler() -> None:
    def wrong(context: Any, record: Any) -> None:
        context.forward(record.with_value(5))

    h = Harness(processing(wrong)).start()
    with pytest.raises(ProcessingError, match=r"node sink.*set production_exception_handler"):
        h.pipe(("a", "1", 1))
    h = Harness(processing(wrong), production_handler=SKIP).start()
    h.feed(("a", "1", 1))
    assert (h.run(), h.outputs()) == (1, [])


def test_a_handler_that_fails_itself_is_named_and_stops_the_task() -> None:
    def handler(context: Any, error: Exception) -> Any:
        raise KeyError("oops")

    h = keeping(processing_handler=handler)
    with pytest.raises(ProcessingError, match=r"processing_exception_handler itself failed.*oops"):
        h.pipe(("a", "fail", 1))
    h = keeping(processing_handler=lambda context, error: "continue")
    with pytest.raises(ProcessingError, match=r"a handler returns a Response, not 'continue'"):
        h.pipe(("a", "fail", 1))


def test_no_handler_is_asked_about_state_that_is_damaged() -> None:
    def damaged(context: Any, record: Any) -> None:
        raise StateError("disk")

    h = Harness(processing(damaged), processing_handler=SKIP).start()
    with pytest.raises(StateError, match=r"disk"):
        h.pipe(("a", "1", 1))
    assert h.task.input.position(IN) == 0


def test_an_interrupted_record_is_the_next_one_again() -> None:
    def interrupted(context: Any, record: Any) -> None:
        raise KeyboardInterrupt

    h = Harness(processing(interrupted)).start()
    with pytest.raises(KeyboardInterrupt):
        h.pipe(("a", "1", 9))
    assert (h.task.input.waiting(), h.task.stream_time, h.task.state) == (1, -1, TaskState.READY)


# -- timestamps


def test_a_negative_timestamp_stops_the_task_by_default() -> None:
    h = forwarding()
    with pytest.raises(ProcessingError, match=r"in-0@0: no timestamp: .*invalid timestamp -1"):
        h.pipe(("k", "v", -1))
    assert h.task.input.waiting() == 1


@pytest.mark.parametrize(
    ("extractor", "stamps"),
    [
        (timestamps.log_and_skip_on_invalid_timestamp, [5]),
        (timestamps.use_partition_time_on_invalid_timestamp, [5, 5]),
        (timestamps.wallclock_timestamp_extractor, [1_000_000, 1_000_000]),
        (lambda record, partition_time: int(record.value), [7, 8]),
        (lambda record, partition_time: partition_time + 2, [1, 3]),
    ],
)
def test_extractors_give_records_their_time(extractor: Any, stamps: list[int]) -> None:
    h = Harness(processing(forward, timestamp_extractor=extractor)).start()
    assert h.pipe(("k", "7", 5), ("k", "8", -1)) == 2
    assert [timestamp for *_, timestamp in h.outputs()] == stamps
    assert h.task.input.position(IN) == 2


def test_an_extractor_that_raises_or_gives_no_time_stops_the_task_before_the_record() -> None:
    for extractor in (lambda record, time: 1 / 0, lambda record, time: 1.5, lambda record, time: 2**63):
        h = Harness(processing(forward, timestamp_extractor=extractor), processing_handler=SKIP).start()
        with pytest.raises(ProcessingError, match=r"source source.*no timestamp: the timestamp extractor raised \w+"):
            h.pipe(("k", "v", 5))
        assert h.task.input.waiting() == 1
