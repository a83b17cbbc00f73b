"""Outputs while they wait to be sent: what they cost, and which node each is of."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from milestones import StreamsBuilder, serdes
from milestones.common.records import Emitted, output_of
from tests.common.task.harness import Harness


def outputs(topic: Any, **to: Any) -> list[Emitted]:
    """Those of a count of two keys, which goes to a sink."""
    builder = StreamsBuilder()
    counts = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key().count("counts")
    counts.to_stream().to(topic, value=serdes.LONG, name="sink", **to)
    task = Harness(builder.build()).start()
    task.pipe(("a", "x", 1), ("b", "y", 2))
    return task.task.take_outputs()


SINKS: dict[str, dict[str, Any]] = {
    "of rows": {"topic": "out"},
    "of an upsert sink": {"topic": "out", "upserts": True},
    "with a partitioner": {"topic": "out", "partitioner": lambda _topic, _key, _value, _count: 0},
    "with a topic of a function": {"topic": lambda _key, _value, _record: "out"},
}


@pytest.mark.parametrize("sink", SINKS)
def test_each_output_has_the_name_of_its_sink_or_its_store(sink: str) -> None:
    nodes = {(output.topic, output.node) for output in map(output_of, outputs(**SINKS[sink]))}
    assert nodes == {("app-counts-changelog", "counts"), ("out", "sink")}


@pytest.mark.parametrize("sink", SINKS)
def test_the_garbage_collector_looks_at_an_output_without_headers_once(sink: str) -> None:
    """Outputs may wait by the hundred thousand, and each full collection looks at all that it tracks."""
    waiting = outputs(**SINKS[sink])
    gc.collect()
    assert not any(map(gc.is_tracked, waiting))
