"""Serdes of windowed keys, whose inner serde may be a type."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from milestones import SessionWindowedSerde, StreamsBuilder, Windowed, WindowedSerde, serdes
from milestones.testing import TopologyTestDriver

KEY = Windowed("a", 5, 15)
SERDES: list[tuple[Any, bytes]] = [
    (WindowedSerde(str, 10), b"a" + bytes([0] * 7 + [5])),
    (WindowedSerde(serdes.STRING, 10), b"a" + bytes([0] * 7 + [5])),
    (SessionWindowedSerde(str), b"a" + bytes([0] * 7 + [15] + [0] * 7 + [5])),
    (SessionWindowedSerde(serdes.STRING), b"a" + bytes([0] * 7 + [15] + [0] * 7 + [5])),
]


@pytest.mark.parametrize(("serde", "data"), SERDES)
def test_a_windowed_key_is_read_as_it_was_written(serde: Any, data: bytes) -> None:
    assert serde.serialize("t", KEY) == data
    assert serde.deserialize("t", data) == KEY
    again = pickle.loads(pickle.dumps(serde))
    assert again.deserialize("t", data) == KEY


def test_a_topic_of_windowed_keys_is_read_as_a_stream() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("counts", key=WindowedSerde(str, 10), value=int)
    counts.select_key(lambda windowed, _: f"{windowed.key}@{windowed.start}").to("out", key=str)
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("counts", key=WindowedSerde(str, 10), value=int).pipe(KEY, 3)
        assert driver.create_output_topic("out", key=str, value=int).read_key_values() == [("a@5", 3)]
