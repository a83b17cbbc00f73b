"""What the runtime looks up in the topology it runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from milestones import Processor, stores
from milestones.common import serdes
from milestones.common.config import StreamsConfig
from milestones.common.topology import StreamsBuilder
from milestones.instance.application import Application

CONFIG = StreamsConfig(variables={}, application_id="app", bootstrap_servers="b:1")


def application() -> Application:
    builder = StreamsBuilder()
    stream = builder.stream(re.compile("in-.*|__.*|app-.*"), offset_reset="latest")
    stream.group_by(lambda key, _: key, key=serdes.STRING).count("counts")
    builder.stream("named").to("out")
    return Application.of(builder.build(), CONFIG)


def test_external_topics_are_the_named_ones_and_those_a_pattern_matches_without_the_applications_own() -> None:
    existing = ["in-1", "other", "__consumer_offsets", "app-counts-repartition", "app-counts-changelog"]
    assert application().external_topics(existing) == {"named", "in-1"}


def test_a_pattern_that_matches_what_the_application_writes_is_warned_of_by_name() -> None:
    assert application().fed_back() is None
    builder = StreamsBuilder()
    builder.stream(re.compile("orders-.*")).to("orders-checked")
    config = CONFIG.replace(errors_dead_letter_queue_topic_name="orders-dead")
    warning = Application.of(builder.build(), config).fed_back()
    assert warning is not None
    assert "the pattern orders-.* matches its own orders-checked, orders-dead" in warning


def test_topics_that_may_not_be_seen_are_no_missing_ones_and_the_text_names_the_right() -> None:
    text = application().missing_topics([], forbidden={"named", "out"})
    assert text is not None
    assert "may not see the source topics named: grant it READ" in text
    assert "may not see the output topics out: grant it WRITE" in text
    assert "create them" not in text
    assert application().missing_topics([], forbidden={"named"}).endswith(  # type: ignore[union-attr]
        "output topics don't exist: out; create them, then start again"
    )


def test_a_topic_takes_the_offset_reset_of_the_source_whose_pattern_matches_it() -> None:
    assert application().offset_reset("in-1") == "latest"
    assert application().offset_reset("named") is None


@pytest.mark.parametrize(
    ("kind", "settings", "warned"),
    [("persistent", {}, True), ("persistent", {"state_dir": "/var/lib/words"}, False), ("in memory", {}, False)],
)
def test_state_in_the_directory_for_temporary_files_that_nobody_has_chosen_is_warned_of(
    kind: str, settings: dict[str, Any], warned: bool
) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("counts", str, int, in_memory=kind == "in memory"))
    builder.stream("in", key=str, value=str).process(Processor, "counts")
    config = StreamsConfig(variables={}, application_id="words", **settings)
    warning = Application.of(builder.build(), config).passing_state(config)
    assert (warning is not None) == warned
    assert warning is None or ("the state of counts lies in" in warning and "set state_dir" in warning)
