"""docs/kafka-streams.md: each public class of Kafka Streams has its row, and what a row says to write exists.

`kafka_streams_api.txt` lists the public classes of Kafka Streams 4.3 outside `internals`, each with the names of its
public methods and constants.
"""

from __future__ import annotations

import builtins
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from docs.api import MODULES
from milestones import serdes, stores
from tests.docs.pages import DOCS

LISTED = Path(__file__).with_name("kafka_streams_api.txt").read_text().splitlines()

LEFT_OUT = {"<init>", "valueOf", "values"}
"""Constructors, and what every enum has: the page says once that they have no place in rows."""

TEST_CLASSES = {"MockProcessorContext", "TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"}
"""Of the artifact for tests, which isn't listed."""

RENAMED = {
    "metadata_max_age": "metadata_max_age_ms",
    "metric_reporter_classes": "metric_reporters",
    "default_deserialization_exception_handler_class": "default_deserialization_exception_handler",
    "default_key_serde_class": "default_key_serde",
    "default_production_exception_handler_class": "default_production_exception_handler",
    "default_timestamp_extractor_class": "default_timestamp_extractor",
    "default_value_serde_class": "default_value_serde",
    "deserialization_exception_handler_class": "deserialization_exception_handler",
    "ensure_explicit_internal_resource_naming": "ensure_explicit_internal_resource_naming_enable",
    "processing_exception_handler_class": "processing_exception_handler",
    "production_exception_handler_class": "production_exception_handler",
    "receive_buffer": "receive_buffer_bytes",
    "rocksdb_config_setter_class": "rocksdb_config_setter",
    "send_buffer": "send_buffer_bytes",
    "window_store_change_log_additional_retention_ms": "windowstore_changelog_additional_retention_ms",
}
"""Constants of `StreamsConfig` that aren't spelled as their keys."""


def listed() -> dict[str, set[str]]:
    """The classes with their names of methods and constants; a class within a class after a dot."""
    parts = (line.partition(":") for line in LISTED)
    return {name.replace("$", "."): set(names.split()) - LEFT_OUT for name, _, names in parts}


def rows(text: str) -> list[tuple[str, str]]:
    """The first cell without its backticks, and the rest of the row."""
    return re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, re.MULTILINE)


PAGE = (DOCS / "kafka-streams.md").read_text()
ROWS = rows(PAGE)
CLASSES = listed()


def classes_of(cell: str) -> list[str]:
    return [name for name in CLASSES if name.endswith(f".{cell}")]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def unsaid(cell: str, rest: str) -> set[str]:
    """The names of the class that its row leaves out."""
    if re.search(r"(^|\| )all: ", rest):
        return set()
    return {name for each in classes_of(cell) for name in CLASSES[each]} - set(quoted(rest))


def thing(name: str) -> Any:
    """The object of the public modules with a dotted name, such as `KStream.map_values` or `stores.window`; None if
    there is none. Of a field that is only annotated, its annotation."""
    first, *others = name.split(".")
    modules: dict[str, Any] = {"serdes": serdes, "stores": stores}
    found = modules.get(first) or next((getattr(one, first) for one in MODULES if first in one.__all__), None)
    for other in others:
        found = getattr(found, "__annotations__", {}).get(other) or getattr(found, other, None)
    return found


def exists(name: str) -> bool:
    return thing(name) is not None


def test_each_class_has_one_row_and_each_row_is_about_one_class() -> None:
    found = [name for cell, _ in ROWS for name in classes_of(cell)]
    assert set(CLASSES) - set(found) == set(), "these have no row"
    assert len(found) == len(set(found)), "a row is about two, or two are about one"
    assert {cell for cell, _ in ROWS if not classes_of(cell)} == TEST_CLASSES


def test_each_row_has_each_method_and_constant_of_its_class() -> None:
    assert {cell: names for cell, rest in ROWS if (names := unsaid(cell, rest))} == {}


def test_each_row_says_what_is_missing() -> None:
    assert [cell for cell, rest in ROWS if len(rest.split(" | ")) != 2 or not all(rest.split(" | "))] == []


def ours(text: str) -> dict[str, list[str]]:
    """What is in backticks and can only be ours, by its kind."""
    names = [name.partition("(")[0] for name in quoted(text)]
    return {
        "dotted": [name for name in names if re.fullmatch(r"[A-Za-z]\w*(\.\w+)+", name) and name != "self.context"],
        "class": [name for name in names if re.fullmatch(r"[A-Z][a-z]\w*", name)],
        "word": [name.rstrip("=") for name in names if re.match(r"[a-z]+_\w+=?$", name)],
    }


def test_what_a_row_says_to_write_exists() -> None:
    cells = {cell for cell, _ in ROWS}  # a row may point to another one
    for cell, rest in ROWS:
        found = ours(rest)
        assert [name for name in found["dotted"] if not exists(name) and name != "application.id"] == [], cell
        unknown = {name for name in found["class"] if not exists(name) and not hasattr(builtins, name)}
        assert unknown <= cells, cell


def test_a_call_that_a_row_shows_has_the_arguments() -> None:
    calls = [re.match(r"([A-Z][a-z][\w.]*)\((.+)\)$", each) for _, rest in ROWS for each in quoted(rest)]
    for name, arguments in (call.groups() for call in calls if call):
        parameters = inspect.signature(thing(name)).parameters
        keywords = [each.partition("=")[0] for each in arguments.split(", ") if "=" in each]
        assert [each for each in keywords if each not in parameters] == [], name
    assert len([call for call in calls if call]) > 20


def test_keywords_settings_and_functions_that_a_row_names_are_on_the_pages_of_api_or_configuration() -> None:
    known = set(re.findall(r"\w+", (DOCS / "api.md").read_text() + (DOCS / "configuration.md").read_text()))
    named = {(cell, word) for cell, rest in ROWS for word in ours(rest)["word"]}
    assert {(cell, word) for cell, word in named if word not in known} == set()
    assert ("RocksDBConfigSetter", "rocksdb_block_cache_bytes") in named


def test_the_page_of_settings_has_each_key_of_kafka_streams() -> None:
    page = (DOCS / "configuration.md").read_text()
    constants = {name for name in CLASSES["org.apache.kafka.streams.StreamsConfig"] if name.endswith("_CONFIG")}
    keys = {name.removesuffix("_CONFIG").lower() for name in constants}
    assert {key for key in keys if f"`{RENAMED.get(key, key)}`" not in page} == set()
    assert len(keys) > 60
    assert RENAMED.keys() <= keys


@pytest.mark.parametrize(
    "name", ["KStream.mapValues", "stores.windows", "Streams.query", "StoreOptions.retention", "Nothing.at_all"]
)
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    assert not exists(name)


@pytest.mark.parametrize(
    "name", ["KStream.map_values", "stores.window", "serdes.LONG", "WindowOptions.retention", "Placement.active"]
)
def test_a_name_that_exists_is_found(name: str) -> None:
    assert exists(name)


def test_a_method_that_a_row_leaves_out_is_found() -> None:
    assert unsaid("Punctuator", "a function | -") == {"punctuate"}
    assert unsaid("Punctuator", "all: a function | -") == set()
    assert unsaid("Punctuator", "`punctuate`: a function | -") == set()
