"""What the operators on streams do to records."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.topology import FixedKeyProcessor, KStream, Processor, StreamsBuilder
from milestones.common.topology.nodes import SinkRecord

TEXT = serdes.STRING
SOME = (("a", "x"), (None, "y"), ("b", None))


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda s: s.filter(lambda k, v: v == "x"), [("a", "x")]),
        (lambda s: s.filter_not(lambda k, v: v == "x"), [(None, "y"), ("b", None)]),
        (lambda s: s.map(lambda k, v: (v, k)), [("x", "a"), ("y", None), (None, "b")]),
        (lambda s: s.map_values(lambda v: [v]), [("a", ["x"]), (None, ["y"]), ("b", [None])]),
        (
            lambda s: s.map_values(lambda k, v: (k, v), with_key=True),
            [("a", ("a", "x")), (None, (None, "y")), ("b", ("b", None))],
        ),
        (lambda s: s.flat_map(lambda k, v: [(v, 1), (k, 2)] if k == "a" else []), [("x", 1), ("a", 2)]),
        (lambda s: s.flat_map_values(lambda v: [v, v] if v else ()), [("a", "x")] * 2 + [(None, "y")] * 2),
        (lambda s: s.flat_map_values(lambda k, v: [k], with_key=True), [("a", "a"), (None, None), ("b", "b")]),
        (lambda s: s.select_key(lambda k, v: v), [("x", "x"), ("y", "y"), (None, None)]),
        (lambda s: s.peek(lambda k, v: "ignored"), [("a", "x"), (None, "y"), ("b", None)]),
        (lambda s: s.merge(s.map_values(str)), [r for k, v in SOME for r in ((k, str(v)), (k, v))]),
        (lambda s: s.repartition(key=TEXT, value=TEXT), [("a", "x"), ("b", None)]),
    ],
)
def test_an_operator_sees_nulls_and_passes_records_on_in_order(run: Any, use: Any, expected: Any) -> None:
    builder, out = StreamsBuilder(), []
    stream = use(builder.stream("in", key=TEXT, value=TEXT))
    stream.for_each(lambda key, value: out.append((key, value)))
    run(builder).feed("in", *SOME)
    assert out == expected


def test_records_go_depth_first_through_children_in_the_order_they_were_added(run: Any) -> None:
    builder, seen = StreamsBuilder(), []
    doubled = builder.stream("in", value=TEXT).flat_map_values(lambda v: [f"{v}1", f"{v}2"])
    for name in "abc":
        doubled.map_values(lambda v, name=name: f"{name}{v}").for_each(lambda k, v: seen.append(v))
    run(builder).pipe("in", None, "x")
    assert seen == ["ax1", "bx1", "cx1", "ax2", "bx2", "cx2"]


def test_timestamps_and_headers_travel_with_the_record(run: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map(lambda k, v: (v, k)).to("out", key=TEXT, value=TEXT)
    (out,) = run(builder).pipe("in", "k", "v", 42, [("trace", b"1")])
    assert out[:7] == ("out", -1, b"v", b"k", 42, [("trace", b"1")], "KSTREAM-SINK-0000000002")


def test_a_branch_takes_what_no_earlier_branch_took_and_the_default_the_rest(run: Any) -> None:
    builder, seen = StreamsBuilder(), []
    branches = (
        builder.stream("in", value=TEXT)
        .split(name="s-")
        .branch(lambda k, v: v < "m", name="low")
        .branch(lambda k, v: v < "t")
        .default_branch()
    )
    assert list(branches) == ["s-low", "s-2", "s-0"]
    for name, stream in branches.items():
        stream.for_each(lambda k, v, name=name: seen.append((name, v)))
    run(builder).feed("in", (None, "a"), (None, "m"), (None, "z"))
    assert seen == [("s-low", "a"), ("s-2", "m"), ("s-0", "z")]


def test_without_a_default_branch_other_records_are_dropped_silently(run: Any) -> None:
    builder = StreamsBuilder()
    split = builder.stream("in", value=TEXT).split()
    split.branch(lambda k, v: v == "a", chain=lambda s: s.to("a")).no_default_branch()
    task = run(builder).feed("in", (None, "a"), (None, "b"))
    assert [out.value for out in task.outputs] == [b"a"]
    assert task.drops == []


def test_a_chained_branch_is_replaced_by_what_its_function_returns() -> None:
    branches = (
        StreamsBuilder()
        .stream("in")
        .split(name="s-")
        .branch(lambda k, v: True, name="kept", chain=lambda stream: stream.map_values(str))
        .branch(lambda k, v: True, name="gone", chain=lambda stream: stream.to("out"))
        .no_default_branch()
    )
    assert {name: type(stream) for name, stream in branches.items()} == {"s-kept": KStream}
    assert branches["s-kept"].name.startswith("KSTREAM-MAPVALUES-")


class Refusing(io.StringIO):
    """A pipe without a reader."""

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")


def _ascii() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii")


def _closed() -> io.StringIO:
    out = io.StringIO()
    out.close()
    return out


@pytest.mark.parametrize("make", [Refusing, _closed, _ascii])
def test_what_print_can_not_write_costs_no_record(run: Any, make: Any) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    out = make()
    stream.print("label", file=out)
    stream.to("out")
    task = run(builder)
    task.pipe("in", "a", "grüße 😀")
    task.pipe("in", "a", "b")
    assert [output.value for output in task.outputs] == ["grüße 😀".encode(), b"b"]
    if make is _ascii:
        assert out.buffer.getvalue() == b"[label]: a, gr\\xfc\\xdfe \\U0001f600\n[label]: a, b\n"


def test_print_writes_a_line_per_record_with_the_stream_s_name(run: Any) -> None:
    builder, out = StreamsBuilder(), io.StringIO()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.print(file=out)
    stream.print("label", file=out, mapper=lambda k, v: f"{k}={v}")
    run(builder).pipe("in", "k", "v")
    assert out.getvalue() == "[KSTREAM-SOURCE-0000000000]: k, v\n[label]: k=v\n"


def test_a_pattern_reads_every_topic_that_it_matches(run: Any) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("clicks-[0-9]+"), value=TEXT).to("out", value=TEXT)
    task = run(builder, topics=("clicks-1", "clicks-22")).feed("clicks-1", (None, "a"))
    task.pipe("clicks-22", None, "b")
    assert [out.value for out in task.outputs] == [b"a", b"b"]
    with pytest.raises(TopologyError, match="belongs to no source"):
        run(builder, topics=("other",))


def test_streams_of_the_same_topic_share_one_source(run: Any) -> None:
    builder, seen = StreamsBuilder(), []
    for name in "ab":
        builder.stream("in", value=TEXT).for_each(lambda k, v, name=name: seen.append(name))
    run(builder).pipe("in", None, "x")
    assert seen == ["a", "b"]
    assert str(builder.build().describe()).count("Source:") == 1


def test_a_sink_s_topic_may_depend_on_the_record(run: Any) -> None:
    builder, seen = StreamsBuilder(), []

    def choose(key: Any, value: Any, record: SinkRecord) -> str:
        seen.append(record)
        return f"out-{value}"

    builder.stream("in", key=TEXT, value=TEXT).to(choose, key=TEXT, value=TEXT)
    task = run(builder).feed("in", ("k", "a", 7, [("h", b"1")]), ("k", "b", 8))
    assert [out.topic for out in task.outputs] == ["out-a", "out-b"]
    assert seen == [SinkRecord(7, [("h", b"1")], "in", 0, 5), SinkRecord(8, [], "in", 0, 5)]


@pytest.mark.parametrize(("chosen", "partitions"), [(3, [3]), (None, [-1]), ([2, 0, 2], [0, 2]), ([], [])], ids=str)
def test_a_partitioner_chooses_one_several_or_no_partition(run: Any, chosen: Any, partitions: list[int]) -> None:
    builder, asked = StreamsBuilder(), []
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.to("out", partitioner=lambda *arguments: asked.append(arguments) or chosen)
    task = run(builder).feed("in", ("k", "v"))
    assert [out.partition for out in task.outputs] == partitions
    assert asked == [("out", "k", "v", 4)]
    assert len(task.drops) == (not partitions)


def test_a_partitioner_that_chooses_a_missing_partition_is_an_error(run: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=TEXT).to("out", partitioner=lambda *_: 4)
    with pytest.raises(TopologyError, match="chose 4 of out's 4"):
        run(builder).pipe("in", None, "v")


def test_a_repartition_writes_through_the_application_s_own_topic(run: Any) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda k, v: v)
    stream.repartition(name="by-value", partitions=5, partitioner=lambda *_: 2).to("out")
    first, second = run(builder).subs
    assert first.sink_topics == second.source_topics == ("app-by-value-repartition",)
    assert second.repartition_topics["app-by-value-repartition"].partitions == 5
    task = run(builder).feed("in", ("k", "v"))
    assert task.rows("out") == [("v", "v", 1)]


def test_a_key_is_repartitioned_only_when_it_may_have_changed() -> None:
    def topics(use: Any) -> int:
        builder = StreamsBuilder()
        use(builder.stream("in")).group_by_key().count()
        return len(builder.build().resolve("app"))

    same = [lambda s: s, lambda s: s.filter(bool), lambda s: s.map_values(str), lambda s: s.flat_map_values(list)]
    same += [lambda s: s.peek(print), lambda s: s.process_values(FixedKeyProcessor)]
    same += [lambda s: s.select_key(max).repartition()]
    assert [topics(use) for use in same] == [1, 1, 1, 1, 1, 1, 2]
    changed = [lambda s: s.map(max), lambda s: s.flat_map(max), lambda s: s.select_key(max)]
    changed += [lambda s: s.process(Processor), lambda s: s.merge(s.select_key(max))]
    assert [topics(use) for use in changed] == [2] * 5


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s: s.filter("no function"), "needs a function"),
        (lambda s: s.map_values(None), "needs a function"),
        (lambda s: s.merge(StreamsBuilder().stream("other")), "same StreamsBuilder"),
        (lambda s: s.repartition(partitions=0), "at least one partition"),
        (lambda s: s.peek(print, name="no spaces"), "can't be named 'no spaces'"),
        (lambda s: s.peek(print, name="x" * 250), "longer than 249"),
        (lambda s: s.to(""), "can't be named ''"),
        (lambda s: s.to("out", value="str"), "must be a Serde"),
        (lambda s: s.process(object()), "give the class"),
        (lambda s: s.group_by_key().count("a/b"), "can't be named 'a/b'"),
    ],
)
def test_what_an_operator_can_t_use_is_refused_at_once(use: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        use(StreamsBuilder().stream("in"))
