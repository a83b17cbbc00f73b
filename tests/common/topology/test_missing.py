"""Words of Kafka Streams that aren't there say what to do instead."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from milestones import Streams, StreamsBuilder, serdes
from milestones.common.topology import FixedKeyProcessor, FixedKeyRecord
from milestones.common.topology.missing import INSTEAD
from milestones.testing import TopologyTestDriver

BUILDER = StreamsBuilder()
STREAM = BUILDER.stream("lines", key=serdes.STRING, value=serdes.STRING)
TABLE = BUILDER.table("products", "products", key=serdes.STRING, value=serdes.STRING)
GROUPED = STREAM.group_by_key()


@pytest.mark.parametrize(
    ("given", "name", "instead"),
    [
        (STREAM, "leftJoin", "its name is left_join"),
        (GROUPED, "windowed_by", "Processor"),
        (GROUPED, "cogroup", "merge"),
        (TABLE, "suppress", "Processor"),
        (TABLE, "to", "to_stream"),
        (STREAM, "foreach", "for_each"),
        (STREAM, "mapValues", "its name is map_values"),
        (STREAM, "groupByKey", "its name is group_by_key"),
        (BUILDER, "global_table", "repartition"),
        (BUILDER, "globalTable", "repartition"),
    ],
)
def test_what_is_missing_says_what_to_do_instead(given: object, name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}': .*{re.escape(instead)}"):
        getattr(given, name)
    assert not hasattr(given, name)


def test_an_application_says_so_too() -> None:
    streams = Streams(BUILDER, application_id="words")
    with pytest.raises(AttributeError, match="interactive queries"):
        streams.store("counts")  # type: ignore[attr-defined]


def test_any_other_attribute_is_missing_as_ever() -> None:
    with pytest.raises(AttributeError, match=r"^'KStream' object has no attribute 'nonsense'$"):
        STREAM.nonsense  # type: ignore[attr-defined]  # noqa: B018
    assert copy.copy(STREAM).name == STREAM.name


def test_nothing_is_called_missing_that_is_there() -> None:
    on_tables = {"to", "for_each", "peek"}
    there = {name for name in INSTEAD for given in (STREAM, TABLE, GROUPED, BUILDER, Streams) if hasattr(given, name)}
    assert there <= on_tables


class Lookup(FixedKeyProcessor):
    def process(self, record: FixedKeyRecord) -> None:
        found: Any = self.context.get_state_store("products").get(record.key)
        self.context.forward(record.with_value("unknown" if found is None else found.value))


def test_a_table_is_looked_up_as_the_hint_says() -> None:
    builder = StreamsBuilder()
    builder.table("products", "products", key=serdes.STRING, value=serdes.STRING)
    orders = builder.stream("orders", key=serdes.STRING, value=serdes.STRING)
    orders.process_values(Lookup, "products").to("named", value=serdes.STRING)
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("products", key=serdes.STRING, value=serdes.STRING).pipe("p1", "pump")
        driver.create_input_topic("orders", key=serdes.STRING, value=serdes.STRING).pipe("p1", "one of them")
        named = driver.create_output_topic("named", key=serdes.STRING, value=serdes.STRING)
        assert named.read_key_values() == [("p1", "pump")]
