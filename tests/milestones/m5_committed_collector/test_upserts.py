"""What a reader of an upsert sink's topic ends with: the same as if each record had been sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milestones import LogAndContinue, StreamsBuilder, Topology, serdes
from milestones.common.partitioner import partition_of
from milestones.common.records import (
    KEY,
    NODE,
    PARTITION,
    TOPIC,
    VALUE,
    DeadLetter,
    Emitted,
    Output,
    emitted_of,
    output_of,
)
from milestones.m5_committed_collector.upserts import FEW, WaitingOutputs, collapsed, upsert_sinks
from tests.common.task.harness import Harness

TEXT = serdes.STRING
PARTITIONS = 3
UPSERTS = frozenset({"upsert", "other-upsert"})
AT_ANY_PACE = settings(deadline=None, suppress_health_check=list(HealthCheck))
SINKS = ("upsert", "other-upsert", "plain", "other-plain")


def record(key: bytes | None, value: bytes | None = b"v", *, node: str = "upsert", **changed: Any) -> Emitted:
    return emitted_of(Output("out", -1, key, value, 1, None, node)._replace(**changed))


@st.composite
def emitted(draw: st.DrawFn) -> Emitted:
    """Records of four sinks, two of which are upsert sinks, and dead letters; topics may be those of functions."""
    node = draw(st.sampled_from(SINKS))
    letter = draw(st.integers(0, 9)) == 0
    keys = st.sampled_from([b"a", b"b", b"c", b""])
    made = record(
        draw(keys if node in UPSERTS and not letter else st.none() | keys),
        draw(st.none() | st.binary(max_size=2)),
        node=node,
        topic=draw(st.sampled_from(["one", "two"])),
        partition=draw(st.sampled_from([-1, -1, 0, 1])),
        timestamp=draw(st.integers(1, 5)),
        headers=draw(st.none() | st.just([("h", b"1")])),
    )
    return DeadLetter(made) if letter else made


OUTPUTS = st.lists(emitted(), max_size=15)
INTERVALS = st.lists(st.lists(OUTPUTS, max_size=4), max_size=3)
"""By interval, what the collector is handed at a turn."""


def compacted(sent: Iterable[Emitted]) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """What compaction leaves of each partition, in order: of each key the last record, and all without a key. Records
    with a partition of the producer's choice are where the key's hash says."""
    logs: dict[tuple[str, int], dict[object, tuple[Any, ...]]] = {}
    for number, (topic, partition, key, *rest) in enumerate(map(output_of, sent)):
        place = partition if partition >= 0 else 0 if key is None else partition_of(key, PARTITIONS)
        log = logs.setdefault((topic, place), {})
        log.pop(key, None)
        log[number if key is None else key] = (key, *rest)
    return {place: list(log.values()) for place, log in logs.items()}


def sent_by(intervals: Sequence[Sequence[Sequence[Emitted]]]) -> list[Emitted]:
    """As the collector sends: what may go goes, the rest at the cut."""
    sent: list[Emitted] = []
    for turns in intervals:
        waiting = WaitingOutputs(UPSERTS)
        for outputs in turns:
            sent += waiting.let_through(outputs)
        sent += waiting.take()
    return sent


# -- collapsed


@AT_ANY_PACE
@given(OUTPUTS)
def test_a_compacted_topic_keeps_the_same_records_in_the_same_order(outputs: list[Emitted]) -> None:
    assert compacted(collapsed(outputs, UPSERTS)) == compacted(outputs)


@AT_ANY_PACE
@given(OUTPUTS)
def test_each_slot_has_its_last_record_as_it_is_and_all_others_are_untouched(outputs: list[Emitted]) -> None:
    last = {slot(output): id(output) for output in outputs if of_upsert_sink(output)}
    kept = [id(output) for output in collapsed(outputs, UPSERTS)]
    assert kept == [id(o) for o in outputs if not of_upsert_sink(o) or last[slot(o)] == id(o)]


@AT_ANY_PACE
@given(OUTPUTS, OUTPUTS)
def test_it_may_be_done_in_pieces(before: list[Emitted], after: list[Emitted]) -> None:
    at_once = collapsed([*before, *after], UPSERTS)
    assert collapsed([*collapsed(before, UPSERTS), *after], UPSERTS) == at_once
    assert collapsed(at_once, UPSERTS) == at_once


def test_without_upsert_sinks_nothing_is_done() -> None:
    outputs = [record(b"a"), record(b"a")]
    assert collapsed(outputs, frozenset()) is outputs
    assert WaitingOutputs(frozenset()).let_through(outputs) is outputs


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"node": "other-upsert"}, "another sink"),
        ({"topic": "else"}, "another topic, which a function has chosen"),
        ({"partition": 2}, "another partition, which a partitioner has chosen"),
        ({"key": b"b"}, "another key"),
        ({"node": "plain"}, "no upsert sink"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_is_of_another_slot_stays(change: dict[str, Any], why: str) -> None:
    first, second = record(b"a"), record(**{"key": b"a", **change})
    assert collapsed([first, second], UPSERTS) == [first, second]


def test_the_last_record_has_its_own_time_headers_and_may_be_a_tombstone() -> None:
    first = record(b"a", timestamp=9, headers=[("h", b"1")])
    last = record(b"a", None, timestamp=3)
    assert collapsed([first, last], UPSERTS) == [last]


def test_a_last_record_stands_where_it_stood() -> None:
    outputs = [record(b"a", b"1"), record(b"b", b"2"), record(b"p", node="plain"), record(b"a", b"3")]
    assert collapsed(outputs, UPSERTS) == outputs[1:]


# -- what waits for the cut


@AT_ANY_PACE
@given(INTERVALS)
def test_what_is_sent_at_once_and_at_cuts_ends_as_if_all_were_sent_in_order(intervals: Any) -> None:
    made = [output for turns in intervals for outputs in turns for output in outputs]
    assert compacted(sent_by(intervals)) == compacted(made)


@AT_ANY_PACE
@given(INTERVALS)
def test_what_other_sinks_and_handlers_write_is_sent_whole_and_in_order_by_topic(intervals: Any) -> None:
    made = [output for turns in intervals for outputs in turns for output in outputs]
    sent = sent_by(intervals)
    for topic in ("one", "two"):
        both = [[o for o in some if o[0] == topic and not of_upsert_sink(o)] for some in (made, sent)]
        assert both[0] == both[1]


@AT_ANY_PACE
@given(INTERVALS)
def test_each_interval_has_one_record_of_each_slot_that_it_wrote(intervals: Any) -> None:
    slots = Counter(
        one for turns in intervals for one in {slot(o) for some in turns for o in some if of_upsert_sink(o)}
    )
    assert Counter(slot(o) for o in sent_by(intervals) if of_upsert_sink(o)) == slots


def test_an_upsert_sinks_records_wait_and_other_topics_flow() -> None:
    upsert, other = record(b"a"), record(b"a", node="plain", topic="else")
    waiting = WaitingOutputs(UPSERTS)
    assert waiting.let_through([upsert, other]) == [other]
    assert waiting.take() == [upsert]


def test_after_the_cut_nothing_of_it_is_left_and_nothing_waits_for_it() -> None:
    waiting = WaitingOutputs(UPSERTS)
    waiting.let_through([record(b"a")])
    waiting.take()
    other = record(b"a", node="plain")
    assert waiting.let_through([other]) == [other]
    assert waiting.take() == []


def test_what_another_sink_writes_to_its_topic_waits_behind_it_but_not_before_it() -> None:
    before, upsert, behind = record(b"a", b"1", node="plain"), record(b"a", b"2"), record(b"a", b"3", node="plain")
    waiting = WaitingOutputs(UPSERTS)
    assert waiting.let_through([before, upsert]) == [before]
    assert waiting.let_through([behind]) == []
    assert waiting.take() == [upsert, behind]


def test_a_key_that_is_updated_often_takes_no_more_memory_than_two_records() -> None:
    waiting = WaitingOutputs(UPSERTS)
    keys = [b"%d" % number for number in range(FEW)]
    for value in (b"%d" % number for number in range(20)):
        waiting.let_through([record(key, value) for key in keys])
        assert len(waiting.outputs) <= 2 * FEW
    assert waiting.take() == [record(key, b"19") for key in keys]
    assert waiting.suppressed == 19 * FEW


# -- of a topology, and of a task


def built() -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", key=TEXT, value=TEXT)
    records.to("plain")
    records.to("upserted", upserts=True, name="upsert")
    records.to(lambda *_: "chosen", upserts=True, name="other-upsert")
    return builder.build()


def test_the_upsert_sinks_of_a_sub_topology_are_named() -> None:
    (sub,) = built().resolve("app")
    assert upsert_sinks(sub) == UPSERTS
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).to("out")
    assert upsert_sinks(builder.build().resolve("app")[0]) == frozenset()


def test_of_a_tasks_outputs_each_upsert_sink_sends_the_last_record_per_key() -> None:
    task = Harness(built(), logs_at_commit=True).start()
    task.pipe(("a", "1", 1), ("b", "2", 2), ("a", "3", 3))
    waiting = WaitingOutputs(upsert_sinks(task.task.subtopology))
    assert values(waiting.let_through(task.task.take_outputs())) == [("plain", b"1"), ("plain", b"2"), ("plain", b"3")]
    assert values(waiting.take()) == [(topic, value) for value in (b"2", b"3") for topic in ("upserted", "chosen")]


def test_dead_letters_of_an_upsert_sink_are_all_there() -> None:
    """They carry the sink's name, and here one key: none."""
    task = Harness(built(), logs_at_commit=True, production_handler=LogAndContinue("dead")).start()
    task.pipe(("a", "1", 1), (None, "2", 2), (None, "3", 3))
    outputs = task.task.take_outputs()
    assert [output[NODE] for output in outputs if output[TOPIC] == "dead"] == ["upsert", "upsert"]
    assert values(o for o in collapsed(outputs, UPSERTS) if o[TOPIC] == "dead") == [("dead", b"2"), ("dead", b"3")]


def test_a_dead_letter_of_an_upsert_sink_does_not_wait_for_the_cut() -> None:
    waiting, letter = WaitingOutputs(UPSERTS), DeadLetter(record(b"a", topic="dead"))
    assert waiting.let_through([letter]) == [letter]


def test_changelog_records_come_apart_so_that_a_store_may_have_a_sinks_name() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by_key().count("counts")
    counts.to_stream().to("out", value=serdes.LONG, upserts=True, name="counts")
    task = Harness(builder.build(), logs_at_commit=True).start()
    task.pipe(("a", "1", 1), ("a", "2", 2))
    assert {output[TOPIC] for output in task.task.take_outputs()} == {"out"}


def values(outputs: Iterable[Emitted]) -> list[tuple[str, bytes | None]]:
    return [(output[TOPIC], output[VALUE]) for output in outputs]


def slot(output: Emitted) -> tuple[object, ...]:
    return output[NODE], output[TOPIC], output[PARTITION], output[KEY]


def of_upsert_sink(output: Emitted) -> bool:
    return output[NODE] in UPSERTS and not isinstance(output, DeadLetter)
