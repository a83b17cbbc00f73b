"""What the runtime looks up in the topology it runs."""

from __future__ import annotations

import re

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
    existing = ["in-1", "other", "__consumer_offsets", "app-counts-repartition"]
    assert application().external_topics(existing) == {"named", "in-1"}


def test_a_topic_takes_the_offset_reset_of_the_source_whose_pattern_matches_it() -> None:
    assert application().offset_reset("in-1") == "latest"
    assert application().offset_reset("named") is None
