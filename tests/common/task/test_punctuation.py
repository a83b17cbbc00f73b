"""Punctuations: Kafka Streams' rules for the first call, for gaps, for cancelling; each in a scope of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from milestones.common.errors import ProcessingError
from milestones.common.records import Record, TopicPartition
from milestones.common.task.punctuation import NEVER, Punctuation, PunctuationQueue
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import Harness, a_store, forward, named, processing

START = 1_000_000
IN = TopicPartition("in", 0)


def calling(kind: str, interval: int, action: Any = None, start: Any = None, **settings: Any) -> tuple[Any, list[int]]:
    """A started task with one punctuation; the times of its calls."""
    calls: list[int] = []

    def init(context: Any) -> None:
        def punctuate(now: int) -> None:
            calls.append(now)
            if action is not None:
                action(context, now, scheduled)

        scheduled = context.schedule(timedelta(milliseconds=interval), kind, punctuate, start=start)

    topology = processing(forward, [a_store()], init=init)
    return Harness(topology, **settings).start(), calls


def at(h: Any, *times: int) -> None:
    h.pipe(*(("k", "v", time) for time in times))


@pytest.mark.parametrize(("times", "called"), [
    ([], []), ([3], [3]), ([3, 9, 10, 11, 19, 20, 55, 59, 60], [3, 10, 20, 55, 60]), ([15, 4, 12], [15]),
], ids=["no record yet", "the first one", "aligned to zero, a gap is made up for once", "old records"])  # fmt: skip
def test_by_stream_time_records_call(times: list[int], called: list[int]) -> None:
    h, calls = calling("stream-time", 10)
    at(h, *times)
    assert calls == called


def test_by_wall_clock_the_first_call_comes_after_one_interval() -> None:
    h, calls = calling("wall-clock-time", 10)
    assert h.task.next_punctuation_ms() == START + 10
    assert not h.task.punctuate(START + 9)
    assert h.task.punctuate(START + 10)
    assert h.task.punctuate(START + 45)
    assert not h.task.punctuate(START + 49)
    assert h.task.punctuate(START + 50)
    assert calls == [START + 10, START + 45, START + 50]


def test_a_task_that_takes_anothers_place_goes_on_in_its_rhythm() -> None:
    first, calls = calling("stream-time", 10)
    at(first, 3, 14)
    assert calls == [3, 14]
    second, calls = calling("stream-time", 10)
    second.task.resume_punctuations(first.task.punctuation_schedule())
    at(second, 15, 19, 20)
    assert calls == [20]
    third, calls = calling("wall-clock-time", 10)
    third.task.punctuate(START + 10)
    fourth, calls = calling("wall-clock-time", 10)
    fourth.task.resume_punctuations(third.task.punctuation_schedule())
    assert fourth.task.next_punctuation_ms() == START + 20


def test_after_the_clock_was_put_back_all_are_due_one_interval_from_then_at_the_latest() -> None:
    h, calls = calling("wall-clock-time", 10)
    h.task.punctuate(START + 10)
    h.task.punctuate(START + 17)
    assert h.task.punctuation_due(START - 3_600_000)
    assert not h.task.punctuate(START - 3_600_000)
    assert not h.task.punctuation_due(START - 3_600_000 + 9)
    assert h.task.punctuate(START - 3_600_000 + 10)
    assert calls == [START + 10, START - 3_600_000 + 10]


def test_a_clock_that_was_put_back_before_anybody_asked_is_noticed_too() -> None:
    h, calls = calling("wall-clock-time", 10)
    assert not h.task.punctuate(START - 3_600_000)
    assert h.task.punctuate(START - 3_600_000 + 10)
    assert calls == [START - 3_600_000 + 10]


def test_a_clock_that_goes_back_a_little_neither_doubles_nor_moves_a_call() -> None:
    h, calls = calling("wall-clock-time", 10)
    for now in (START + 10, START + 9, START + 12, START + 11, START + 20):
        h.task.punctuate(now)
    assert calls == [START + 10, START + 20]


def test_a_clock_that_jumps_ahead_calls_once_and_the_rhythm_stays() -> None:
    h, calls = calling("wall-clock-time", 10)
    h.task.punctuate(START + 3_600_005)
    assert (calls, h.task.next_punctuation_ms()) == ([START + 3_600_005], START + 3_600_010)


def test_what_is_scheduled_by_a_clock_that_was_put_back_waits_its_interval() -> None:
    calls: list[int] = []
    h = Harness(processing(lambda context, record: context.schedule(10, "wall-clock-time", calls.append)))
    h.start()
    h.task.punctuate(START + 50)
    h.clock.set_wall_ms(START - 1_000)
    h.pipe(("k", "v", 1))
    assert [h.task.punctuate(START - 1_000 + passed) for passed in (0, 9, 10)] == [False, False, True]


def test_a_roll_back_after_the_clock_was_put_back_waits_one_interval_at_most() -> None:
    h, _ = calling("wall-clock-time", 10)
    h.clock.set_wall_ms(START - 3_600_000)
    h.task.roll_back()
    h.task.initialise()
    assert h.task.next_punctuation_ms() == START - 3_600_000 + 10


# -- anchored (KIP-1146)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (START, START), (START + 7, START + 7), (START + 1_000, START + 1_000), (START - 3, START + 7),
        (START - 10, START + 10), (0, START + 10), (datetime.fromtimestamp(START / 1000 + 5, tz=UTC), START + 5_000),
        (datetime.fromtimestamp(START / 1000 + 5, tz=timezone(timedelta(hours=9))), START + 5_000),
    ],
    ids=["now", "soon", "far ahead", "just past", "one interval past", "1970", "a datetime", "of another zone"],
)  # fmt: skip
def test_the_first_call_of_an_anchored_one_keeps_to_its_anchor(start: Any, first: int) -> None:
    h, calls = calling("wall-clock-time", 10, start=start)
    assert h.task.next_punctuation_ms() == first
    assert not h.task.punctuate(first - 1)
    h.task.punctuate(first + 23)
    assert (calls, h.task.next_punctuation_ms()) == ([first + 23], first + 30)


def test_an_anchor_by_stream_time_lets_earlier_records_pass() -> None:
    h, calls = calling("stream-time", 10, start=25)
    at(h, 3, 24, 25, 34, 36)
    assert calls == [25, 36]


def test_a_clock_that_was_put_back_leaves_an_anchored_one_at_its_times() -> None:
    h, calls = calling("wall-clock-time", 10, start=START + 3)
    for now in (START + 3, START + 2, START + 12, START + 13):
        h.task.punctuate(now)
    assert calls == [START + 3, START + 13]
    h.task.punctuate(START - 3_600_000)
    assert h.task.next_punctuation_ms() == START + 3
    h.task.punctuate(START + 3)
    assert calls[-1] == START + 3


def test_a_clock_that_was_put_back_does_not_call_before_the_anchor_nor_makes_others_wait() -> None:
    h, _ = calling("wall-clock-time", 10, start=START + 1_000)
    h.task.punctuate(START - 500)
    assert h.task.next_punctuation_ms() == START + 1_000
    h.task.roll_back()
    h.task.initialise()
    assert h.task.next_punctuation_ms() == START + 1_000


@pytest.mark.parametrize(
    ("start", "says"),
    [(-1, r"must not be before 1970: -1 ms"), (datetime(2026, 1, 1), r"needs a zone")],
    ids=["negative", "without a zone"],
)
def test_an_anchor_that_makes_no_sense_is_refused(start: Any, says: str) -> None:
    with pytest.raises(ProcessingError, match=says):
        calling("wall-clock-time", 10, start=start)


def test_a_punctuation_may_cancel_itself() -> None:
    h, calls = calling("stream-time", 10, lambda context, now, scheduled: scheduled.cancel())
    at(h, 1, 100, 200)
    assert calls == [1]
    h, calls = calling("wall-clock-time", 10, lambda context, now, scheduled: scheduled.cancel())
    h.task.punctuate(START + 10)
    assert (h.task.punctuate(START + 99), h.task.next_punctuation_ms(), len(calls)) == (False, None, 1)


def test_a_punctuation_has_no_input_record_and_no_headers() -> None:
    seen: list[Any] = []

    def look(context: Any, now: int, scheduled: Any) -> None:
        seen.append(context.record_metadata())
        context.forward(Record("p", "v", now))

    h, _ = calling("wall-clock-time", 10, look)
    h.pipe(("k", "v", 1), headers=[("h", b"1")])
    h.task.take_outputs()
    h.task.punctuate(START + 10)
    assert seen == [None]
    (output,) = named(h.task.take_outputs())
    assert (output.key, output.timestamp, output.headers) == (b"p", START + 10, None)


def test_a_punctuation_by_stream_time_has_no_input_record_either() -> None:
    seen: list[Any] = []
    h, _ = calling("stream-time", 10, lambda context, now, scheduled: seen.append(context.record_metadata()))
    at(h, 1, 100)
    assert seen == [None, None]


def test_what_a_punctuation_writes_is_logged_with_its_time_and_committed() -> None:
    h, _ = calling("wall-clock-time", 10, lambda context, now, s: context.get_state_store("store").put("p", str(now)))
    h.task.punctuate(START + 10)
    assert h.task.commit_needed()
    assert h.commit().offsets == {IN: 0}
    assert h.engine("store") == {b"p": b"1000010"}
    assert h.sent[0].timestamp == START + 10


def fail(context: Any, now: int, scheduled: Any) -> None:
    context.get_state_store("store").put("p", "v")
    raise RuntimeError("user code")


def test_a_failed_punctuation_leaves_nothing_and_is_due_again() -> None:
    h, calls = calling("wall-clock-time", 10, fail)
    for _ in range(2):
        with pytest.raises(ProcessingError, match=r"node worker, no input record: RuntimeError: user code"):
            h.task.punctuate(START + 10)
    assert (len(calls), h.task.commit_needed(), h.task.next_punctuation_ms()) == (2, False, START + 10)


def test_a_failed_stream_time_punctuation_stops_before_the_next_record_not_before_its_own() -> None:
    h, calls = calling("stream-time", 10, fail)
    h.feed(("k", "v", 1), ("k", "v", 2))
    for _ in range(2):
        with pytest.raises(ProcessingError):
            h.run()
        assert h.task.input.position(IN) == 1
    assert (len(calls), h.task.input.waiting()) == (2, 1)


def test_a_handler_may_skip_a_failed_punctuation() -> None:
    h, calls = calling("stream-time", 10, fail, processing_handler=LogAndContinue("dead"))
    at(h, 1, 2, 11)
    assert len(calls) == 2
    assert [topic for topic, *_ in h.outputs()] == ["out", "dead", "out", "out", "dead"]
    assert list(h.task.store("store").all()) == []


def test_earlier_ones_are_called_first_and_equal_ones_in_the_order_of_scheduling() -> None:
    queue, called = PunctuationQueue(), []
    for name, first in (("c", 5), ("a", 5), ("b", 3)):
        queue.schedule(name, lambda now: None, first, 100)
    assert queue.next_ms == 3

    def call(punctuation: Punctuation) -> bool:
        called.append(punctuation.node)
        punctuation.called(5)
        return True

    assert queue.run_due(5, call)
    assert (called, queue.next_ms) == (["b", "c", "a"], 103)


def test_a_cancelled_one_isnt_waited_for() -> None:
    queue = PunctuationQueue()
    scheduled = queue.schedule("a", lambda now: None, 5, 10)
    scheduled.cancel()
    assert not queue.run_due(5, lambda punctuation: True)
    assert queue.next_ms == NEVER


def test_an_interval_is_at_least_a_millisecond() -> None:
    with pytest.raises(ValueError, match=r"each 0 ms: the least is 1"):
        PunctuationQueue().schedule("a", lambda now: None, 0, 0)
