"""What a compiled program promises: names in tracebacks, nothing shared, serdes, errors, few calls."""

from __future__ import annotations

import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import MilestonesError, SerializationError
from milestones.common.topology import Processor, StreamsBuilder, timestamps
from milestones.common.topology.sink import OutputSerializationError
from milestones.common.topology.timestamps import SourceRecord
from milestones.common.topology.tracebacks import failing_node

TEXT = serdes.STRING


def fails(*_: Any) -> Any:
    raise RuntimeError("user code")


def error_of(run: Any, use: Any, key: Any = "k", value: Any = "v") -> Exception:
    builder = StreamsBuilder()
    use(builder.stream("in", key=TEXT, value=TEXT))
    with pytest.raises(Exception) as info:
        run(builder).pipe("in", key, value)
    return info.value


@pytest.mark.parametrize(
    ("use", "node"),
    [
        (lambda s: s.filter(fails), "KSTREAM-FILTER-0000000001"),
        (lambda s: s.map_values(str).map(fails).to("out"), "KSTREAM-MAP-0000000002"),
        (lambda s: s.flat_map_values(fails, name="mine"), "mine"),
        (lambda s: s.split().branch(fails).no_default_branch(), "KSTREAM-BRANCH-0000000001"),
        (lambda s: [s.peek(lambda k, v: None), s.merge(s.peek(fails))], "KSTREAM-PEEK-0000000002"),
        (lambda s: s.group_by_key().aggregate(int, fails), "KSTREAM-AGGREGATE-0000000002"),
        (lambda s: s.to_table("rows").map_values(fails), "KTABLE-MAPVALUES-0000000002"),
        (lambda s: s.to_table().to_stream().for_each(fails), "KSTREAM-FOREACH-0000000004"),
        (lambda s: s.to(fails), "KSTREAM-SINK-0000000001"),
        (lambda s: s.to("out", partitioner=fails), "KSTREAM-SINK-0000000001"),
        (lambda s: s.process(type("Failing", (Processor,), {"process": fails})), "KSTREAM-PROCESSOR-0000000001"),
    ],
)
def test_a_traceback_names_the_node_whose_code_failed(run: Any, use: Any, node: str) -> None:
    error = error_of(run, use)
    assert failing_node(error) == node
    assert f"in {node}\n" in "".join(traceback.format_exception(error))


def test_an_error_from_elsewhere_has_no_failing_node() -> None:
    assert failing_node(ValueError()) is None


def test_two_nodes_of_the_same_operator_have_code_of_their_own(run: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(bool).filter(bool).to("out")
    source = run(builder).programs[0].sources["in"].process
    assert source.__code__.co_name == "KSTREAM-FILTER-0000000001"
    assert source.__name__ == "KSTREAM-FILTER-0000000001"


def test_a_sink_that_can_t_serialise_says_which_part_for_which_topic(run: Any) -> None:
    error = error_of(run, lambda s: s.map_values(len).to("out", value=TEXT))
    assert isinstance(error, OutputSerializationError)
    assert (error.topic, error.origin, error.node) == ("out", "value", "KSTREAM-SINK-0000000002")
    assert "sink KSTREAM-SINK-0000000002: serde STRING can't write a int for topic out" in str(error)
    error = error_of(run, lambda s: s.select_key(lambda k, v: 5).to("out", key=TEXT))
    assert isinstance(error, OutputSerializationError)
    assert error.origin == "key"


def test_a_source_that_can_t_deserialise_says_which_topic(run: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=serdes.LONG).to("out")
    source = run(builder).programs[0].sources["in"]
    with pytest.raises(SerializationError, match="LONG can't read 3 bytes of topic in"):
        source.value(b"abc", None)
    assert source.value(None, None) is None


def test_a_serde_is_the_operator_s_then_upstream_s_then_the_default() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.to("same")
    stream.to("own", key=serdes.LONG, value=serdes.JSON)
    stream.map(lambda k, v: (k, v)).to("changed")
    builder.stream("other").to("unknown")

    def used(**defaults: Any) -> dict[str, tuple[str, str]]:
        subs = builder.build().resolve("app", **defaults)
        sinks = [node for sub in subs for node in sub.nodes if hasattr(node, "partitioner")]
        return {node.topic: (node.key.name, node.value.name) for node in sinks}

    assert used() == {
        "same": ("STRING", "STRING"),
        "own": ("LONG", "JSON"),
        "changed": ("STRING", "STRING"),  # no default: the nearest one known
        "unknown": ("BYTES", "BYTES"),
    }
    assert used(default_key_serde=serdes.UUID, default_value_serde=serdes.DOUBLE) == {
        "same": ("STRING", "STRING"),
        "own": ("LONG", "JSON"),
        "changed": ("UUID", "DOUBLE"),  # what Kafka Streams does
        "unknown": ("UUID", "DOUBLE"),
    }


def test_timestamps_are_the_record_s_unless_an_extractor_is_given(run: Any) -> None:
    def by_value(record: SourceRecord, partition_time: int) -> int:
        return int(record.value)

    builder = StreamsBuilder()
    builder.stream("plain").group_by(lambda k, v: v, name="g").count()
    builder.stream("own", timestamp_extractor=by_value).to("out")
    builder.table("clock", timestamp_extractor=timestamps.wallclock_timestamp_extractor)
    record = SourceRecord(None, "5", 3, "own", 0, 0, [])

    def extractors(config: dict[str, Any]) -> dict[str, Any]:
        programs = run(builder, config).programs.values()
        return {topic: source.timestamp for program in programs for topic, source in program.sources.items()}

    found = extractors({})
    assert (found["plain"], found["own"], found["app-g-repartition"]) == (None, by_value, None)
    assert found["clock"](record, -1) == 1234  # the task's clock
    found = extractors({"default_timestamp_extractor": timestamps.log_and_skip_on_invalid_timestamp})
    assert found["plain"] is timestamps.log_and_skip_on_invalid_timestamp
    assert (found["own"], found["app-g-repartition"]) == (by_value, None)


def test_built_in_extractors_treat_invalid_timestamps_as_they_say() -> None:
    good, bad = (SourceRecord(None, None, timestamp, "in", 1, 2, []) for timestamp in (7, -1))
    for extractor in (
        timestamps.fail_on_invalid_timestamp,
        timestamps.log_and_skip_on_invalid_timestamp,
        timestamps.use_partition_time_on_invalid_timestamp,
    ):
        assert extractor(good, 3) == 7
    assert timestamps.log_and_skip_on_invalid_timestamp(bad, 3) == -1
    assert timestamps.use_partition_time_on_invalid_timestamp(bad, 3) == 3
    with pytest.raises(MilestonesError, match="in-1 offset 2 has the invalid timestamp -1"):
        timestamps.fail_on_invalid_timestamp(bad, 3)
    with pytest.raises(MilestonesError, match="invalid timestamp"):
        timestamps.use_partition_time_on_invalid_timestamp(bad, -1)
    assert timestamps.wallclock_timestamp_extractor(bad, -1) > 1_600_000_000_000


def test_a_count_takes_two_calls_of_closures_per_record(run: Any) -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by_key().count("counts")
    counts.to_stream().to("out", value=serdes.LONG)
    source = run(builder).programs[0].sources["in"]
    calls: list[str] = []

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.endswith(("aggregates.py", "sink.py", "compiled.py", "ors.py")):
            calls.append(frame.f_code.co_name)

    sys.setprofile(trace)
    try:
        source.process("a", "x", 0)
    finally:
        sys.setprofile(None)
    assert calls == ["KSTREAM-AGGREGATE-0000000001", "KSTREAM-SINK-0000000003"]


def test_threads_may_compile_and_run_one_topology_at_once(run: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by(lambda k, v: v, key=TEXT, value=TEXT)
    grouped.count("counts").to_stream().to("out", value=serdes.LONG)
    topology = builder.build()
    before = str(topology.describe())

    def work(_: int) -> list[Any]:
        task = run(topology)
        for index in range(50):
            task.pipe("in", "k", str(index % 5))
        return task.rows("out")[-5:]  # type: ignore[no-any-return]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(8)))
    assert results == [[(str(number), 10, 1) for number in range(5)]] * 8
    assert str(topology.describe()) == before
