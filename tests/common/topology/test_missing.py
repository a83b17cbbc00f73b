"""Words of Kafka Streams that aren't there say what to do instead."""

from __future__ import annotations

import copy
import re

import pytest

from milestones import Streams, StreamsBuilder, serdes
from milestones.common.topology.missing import INSTEAD

BUILDER = StreamsBuilder()
STREAM = BUILDER.stream("lines", key=serdes.STRING, value=serdes.STRING)
TABLE = BUILDER.table("products", "products", key=serdes.STRING, value=serdes.STRING)
GROUPED = STREAM.group_by_key()


@pytest.mark.parametrize(
    ("given", "name", "instead"),
    [
        (STREAM, "windowed_by", "group_by_key"),
        (STREAM, "cogroup", "group_by_key().cogroup"),
        (STREAM, "suppress", "to_table()"),
        (TABLE, "to", "to_stream"),
        (STREAM, "foreach", "for_each"),
        (STREAM, "mapValues", "its name is map_values"),
        (STREAM, "leftJoin", "its name is left_join"),
        (TABLE, "outerJoin", "its name is outer_join"),
        (STREAM, "groupByKey", "its name is group_by_key"),
        (BUILDER, "globalTable", "its name is global_table"),
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
    elsewhere = {"to", "for_each", "peek", "windowed_by", "suppress", "cogroup"}
    there = {name for name in INSTEAD for given in (STREAM, TABLE, GROUPED, BUILDER, Streams) if hasattr(given, name)}
    assert there <= elsewhere
