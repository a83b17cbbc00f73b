"""Which record is next when a task reads several partitions (KIP-353, KIP-695)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milestones.common import serdes
from milestones.common.errors import ProcessingError
from milestones.common.records import TopicPartition
from milestones.common.task.buffers import InputBuffer
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import Harness, forward, forwarding, message, processing

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
LAST = 2**63 - 1
"""The last timestamp that a record may have."""


def both(**settings: Any) -> Any:
    return forwarding(topics=("a", "b"), **settings)


def values(h: Any) -> list[str]:
    return [value.decode() for _, _, value, _ in h.outputs()]


def test_the_smallest_timestamp_over_the_heads_is_next() -> None:
    h = both()
    h.feed(("k", "a1", 1), ("k", "a5", 5), ("k", "a3", 3), topic="a")
    h.feed(("k", "b2", 2), ("k", "b4", 4), topic="b")
    h.task.input.reached_end(A, 3, 0)
    h.task.input.reached_end(B, 2, 0)
    assert h.run() == 5
    assert values(h) == ["a1", "b2", "b4", "a5", "a3"]


def test_equal_timestamps_go_in_the_order_of_the_partitions_however_small_the_steps() -> None:
    for limit in (1, 2, 100):
        h = both(max_task_idle_ms=-1)
        h.feed(("k", "b1", 1), ("k", "b2", 1), topic="b")
        h.feed(("k", "a1", 1), ("k", "a2", 1), topic="a")
        while h.run(limit):
            pass
        assert values(h) == ["a1", "a2", "b1", "b2"]


def test_an_empty_partition_is_waited_for_until_its_end_is_known() -> None:
    h = both()
    h.feed(("k", "a", 1), topic="a")
    assert (h.task.ready(0), h.run()) == (False, 0)
    h.task.input.reached_end(B, 0, 0)
    assert (h.task.ready(0), h.run()) == (True, 1)


def test_new_records_make_the_end_unknown_again() -> None:
    h = both()
    h.task.input.reached_end(B, 0, 0)
    h.feed(("k", "b", 1), topic="b")
    assert h.pipe(("k", "a2", 2), ("k", "a3", 3), topic="a") == 1
    assert not h.task.ready(0)
    h.task.input.reached_end(B, 1, 0)
    assert h.run() == 2


def test_an_empty_partition_at_its_end_is_waited_for_max_task_idle_ms_longer() -> None:
    h = both(max_task_idle_ms=100)
    h.feed(("k", "a", 1), topic="a")
    h.task.input.reached_end(B, 0, 1_000)
    assert [h.task.ready(now) for now in (1_000, 1_099, 1_100)] == [False, False, True]
    assert h.task.process(10, 1_100) == 1


def test_the_wait_begins_when_the_partition_ran_empty() -> None:
    h = both(max_task_idle_ms=100)
    h.feed(("k", "b", 1), topic="b")
    h.feed(("k", "a", 2), ("k", "a", 3), topic="a")
    h.task.input.reached_end(B, 1, 1_000)
    assert h.task.process(10, 5_000) == 1
    assert [h.task.ready(now) for now in (5_000, 5_099, 5_100)] == [False, False, True]


def test_with_max_task_idle_ms_minus_one_nothing_is_waited_for() -> None:
    h = both(max_task_idle_ms=-1)
    h.feed(("k", "a", 1), topic="a")
    assert (h.task.ready(0), h.run()) == (True, 1)


def test_without_any_record_a_task_isnt_ready() -> None:
    h = both()
    h.task.input.reached_end(A, 0, 0)
    h.task.input.reached_end(B, 0, 0)
    assert (h.task.ready(10**9), h.run()) == (False, 0)
    assert not forwarding().task.ready(0)


def test_extractors_decide_the_order_and_read_each_head_once() -> None:
    read: list[str] = []

    def by_value(record: Any, partition_time: int) -> int:
        read.append(record.value)
        return int(record.value)

    topology = processing(forward, topics=("a", "b"), timestamp_extractor=by_value)
    h = Harness(topology, max_task_idle_ms=-1).start()
    h.feed(("k", "3", 0), ("k", "1", 0), topic="a")
    h.pipe(("k", "2", 0), ("k", "4", 0), topic="b")
    assert (values(h), sorted(read)) == (["2", "3", "1", "4"], ["1", "2", "3", "4"])


def test_heads_that_cant_be_read_are_skipped_before_the_order_is_decided() -> None:
    topology = processing(lambda context, record: context.forward(record.with_value(str(record.value))),
                              topics=("a", "b"), value=serdes.LONG)  # fmt: skip
    h = Harness(topology, max_task_idle_ms=-1, deserialization_handler=LogAndContinue("dead")).start()
    h.feed(("k", b"bad", 1), ("k", bytes(8), 5), topic="a")
    h.pipe(("k", bytes(7) + b"\x01", 4), topic="b")
    assert [(topic, value) for topic, _, value, _ in h.outputs()] == [("dead", b"bad"), ("out", b"1"), ("out", b"0")]
    assert (h.task.input.position(A), h.task.input.position(B)) == (2, 1)


def test_no_head_is_looked_at_by_a_run_without_room_for_a_record() -> None:
    topology = processing(forward, topics=("a", "b"), value=serdes.LONG)
    h = Harness(topology, max_task_idle_ms=-1, deserialization_handler=LogAndContinue("dead")).start()
    h.feed(("k", b"bad", 1), topic="a")
    h.feed(("k", bytes(8), 4), topic="b")
    assert (h.run(0), h.outputs(), h.task.input.position(A)) == (0, [], 0)


@pytest.mark.parametrize("record", [(b"bad", 1), (bytes(8), -1)], ids=["unreadable", "without a time"])
def test_a_partition_with_nothing_but_skipped_records_is_passed_and_takes_no_room_any_more(record: Any) -> None:
    topology = processing(
        forward, topics=("a", "b"), value=serdes.LONG, timestamp_extractor=lambda record, _: record.timestamp
    )
    h = Harness(topology, max_task_idle_ms=-1, deserialization_handler=LogAndContinue()).start()
    for passed in (10, 20, 30):
        assert h.pipe(*[("k", *record)] * 10, topic="a") == 0
        assert (h.task.input.position(A), h.task.input.waiting(), h.task.input.bytes()) == (passed, 0, 0)
    assert h.task.commit_needed()


def test_a_failed_record_of_several_partitions_is_the_next_one_again() -> None:
    h = both(max_task_idle_ms=-1)
    h.feed(("k", "fail", 5), topic="a")
    h.feed(("k", "b", 9), topic="b")
    for _ in range(2):
        with pytest.raises(ProcessingError, match=r"record a-0@0"):
            h.run()
    assert (h.task.input.waiting_of(A), h.task.input.position(A), h.task.stream_time) == (1, 0, -1)


def test_what_is_gone_from_kafka_is_skipped() -> None:
    h = both()
    h.task.input.skip_to(A, 100)
    assert (h.task.input.waiting(), h.task.input.position(A), h.task.commit_needed()) == (0, 100, True)


def test_what_was_fetched_before_the_rest_was_gone_from_kafka_is_processed_all_the_same() -> None:
    h = both(max_task_idle_ms=-1)
    h.feed(("k", "a", 1), topic="a")
    assert h.task.input.next_fetch(A) == 1
    h.task.input.skip_to(A, 100)
    assert (h.task.input.waiting(), h.task.input.position(A)) == (1, 0)
    assert (h.run(), values(h)) == (1, ["a"])


def test_what_was_committed_past_control_records_isnt_taken_back_by_later_input() -> None:
    h = both()
    h.feed(("k", "a", 1), topic="a")
    for partition, end in ((A, 3), (B, 0)):
        h.task.input.reached_end(partition, end, 0)
    h.run()
    assert h.commit().offsets[A] == 3
    h.task.input.add(A, [message(3, b"k", b"b", 2, topic="a")])
    assert not h.task.commit_needed()
    assert h.commit().offsets[A] == 3


def by_the_smallest_head(partitions: dict[str, list[tuple[str, int]]]) -> list[str]:
    """Names of records, (name, time) by partition: of the first ones always the oldest, of equals that of the first
    partition."""
    waiting = {topic: records[:] for topic, records in sorted(partitions.items())}
    order = []
    while any(waiting.values()):
        oldest = min((topic for topic in waiting if waiting[topic]), key=lambda topic: waiting[topic][0][1])
        order.append(waiting[oldest].pop(0)[0])
    return order


TIMES = st.integers(0, 5) | st.just(LAST)


@given(st.lists(st.tuples(st.sampled_from("abc"), TIMES), max_size=40), st.integers(1, 7), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_order_is_that_of_the_heads_however_many_records_are_processed_at_once(
    records: list[tuple[str, int]], limit: int, extracted: bool
) -> None:
    given = {topic: [(f"{n}", time) for n, (of, time) in enumerate(records) if of == topic] for topic in "abc"}
    times = {name: time for partition in given.values() for name, time in partition}
    extractor: Any = {"timestamp_extractor": lambda record, _: times[record.value]} if extracted else {}
    for most in (1_000, limit):
        h = Harness(processing(forward, topics=("a", "b", "c"), **extractor), max_task_idle_ms=-1).start()
        for topic, partition in given.items():
            h.feed(*(("k", name, 0 if extracted else time) for name, time in partition), topic=topic)
        while done := h.run(most):
            assert done <= most
        assert values(h) == by_the_smallest_head(given)
        assert h.task.input.waiting() == h.task.input.bytes() == 0


def test_a_failed_record_within_a_run_of_its_partition_is_the_next_one_again() -> None:
    h = both(max_task_idle_ms=-1)
    h.feed(("k", "a1", 1), ("k", "a2", 2), ("k", "fail", 3), ("k", "a4", 4), topic="a")
    h.feed(("k", "b9", 9), topic="b")
    for _ in range(2):
        with pytest.raises(ProcessingError, match=r"record a-0@2"):
            h.run()
        assert (h.task.input.position(A), h.task.input.position(B), h.task.stream_time) == (2, 0, 2)
    assert values(h) == ["a1", "a2"]


def test_a_record_that_cant_be_read_within_a_run_is_skipped_and_the_order_stays() -> None:
    topology = processing(lambda context, record: context.forward(record.with_value(str(record.value))),
                              topics=("a", "b"), value=serdes.LONG)  # fmt: skip
    h = Harness(topology, max_task_idle_ms=-1, deserialization_handler=LogAndContinue()).start()
    one, two, three = (number.to_bytes(8, "big") for number in (1, 2, 3))
    h.feed(("k", one, 1), ("k", b"bad", 2), ("k", three, 3), topic="a")
    h.feed(("k", two, 2), topic="b")
    assert h.run() == 4
    assert values(h) == ["1", "2", "3"]


def test_bytes_of_a_buffer_are_those_of_its_records() -> None:
    buffer = InputBuffer(A)
    assert buffer.bytes() == 0
    buffer.add([message(0, None, b"x" * 1000, 1), message(1, None, b"y" * 1000, 1)])
    assert 2000 < buffer.bytes() < 3000
    buffer.messages.popleft()
    buffer.taken(1)
    assert 1000 < buffer.bytes() < 1500
    buffer.clear()
    assert buffer.bytes() == 0


def test_a_batch_that_ends_while_its_buffer_is_shed_makes_no_bytes_of_it_unknown_for_long() -> None:
    """The batch has read how much was taken, and writes it when the buffer has been counted anew."""
    buffer = InputBuffer(A)
    buffer.add([message(offset, None, b"x" * 1000, 1) for offset in range(100)])
    buffer.messages.popleft()
    buffer.taken(1)
    taken_by_a_batch = buffer._taken + buffer.bytes() // 2
    assert buffer.drop_behind_head() == 2
    buffer._taken = taken_by_a_batch
    assert buffer.drop_behind_head() is None
    assert 1000 < buffer.bytes() < 1500


def test_what_has_left_each_partition_is_counted_also_when_a_record_of_the_other_one_fails() -> None:
    h = both(max_task_idle_ms=-1)
    h.feed(*(("k", "a" * 1000, time) for time in (1, 3, 9)), topic="a")
    h.feed(*(("k", "b" * 1000, time) for time in (2, 4)), ("k", "fail", 5), topic="b")
    for _ in range(2):
        with pytest.raises(ProcessingError, match=r"record b-0@2"):
            h.run()
        assert h.task.counters.processed == 4
        of_a, of_b = (h.task.input.buffers[partition].bytes() for partition in (A, B))
        assert 1000 < of_a < 1500
        assert 0 < of_b < 1000


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_run_ends_at_its_limit_whatever_partition_its_records_are_from(limit: int) -> None:
    h = both(max_task_idle_ms=-1)
    h.feed(*(("k", f"a{time}", time) for time in (1, 3, 5, 7)), topic="a")
    h.feed(*(("k", f"b{time}", time) for time in (2, 4, 6, 8)), topic="b")
    assert h.run(limit) == h.task.counters.processed == limit
    assert values(h) == ["a1", "b2", "a3"][:limit]


@pytest.mark.parametrize("record", range(1, 5))
def test_a_roll_back_at_a_record_ends_the_run_before_the_other_partition_is_next(record: int) -> None:
    seen: list[str] = []

    def see(context: Any, given: Any) -> None:
        seen.append(given.value)
        if len(seen) == record:
            h.task.invalidate()
        context.forward(given)

    h = Harness(processing(see, topics=("a", "b")), max_task_idle_ms=-1).start()
    h.feed(("k", "a1", 1), ("k", "a3", 3), topic="a")
    h.feed(("k", "b2", 2), ("k", "b4", 4), topic="b")
    assert h.run() == record
    assert seen == ["a1", "b2", "a3", "b4"][:record]
    assert values(h) == []
