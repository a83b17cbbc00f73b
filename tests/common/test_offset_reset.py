"""How a reset policy may be written, for all sources and for one."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from milestones import ConfigError, StreamsBuilder, StreamsConfig, Topology, TopologyError
from milestones.common.offset_reset import reset_policy

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("written", "policy"),
    [
        ("earliest", "earliest"), (" Latest ", "latest"), ("none", "none"), (HOUR, HOUR), (timedelta(), timedelta()),
        ("by_duration:PT1H", HOUR), ("by_duration:PT60M", HOUR), ("BY_DURATION:pt3600s", HOUR),
        ("by_duration:P2D", timedelta(days=2)),
        ("by_duration:P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("by_duration:PT0.25S", timedelta(milliseconds=250)),
    ],
)  # fmt: skip
def test_a_policy_has_kafkas_words_or_is_a_duration(written: Any, policy: Any) -> None:
    assert reset_policy(written) == policy


@pytest.mark.parametrize(
    "written",
    ["soonest", "", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1DT", "by_duration:PT-1H",
     "by_duration:1H", "by_duration:P1Y", "PT1H", -HOUR, 3600, None],
)  # fmt: skip
def test_what_is_no_policy_is_refused_with_all_there_are(written: Any) -> None:
    with pytest.raises(ValueError, match=r"must be earliest, latest, none, or how old records may be"):
        reset_policy(written)


def test_the_config_and_each_source_take_them_and_name_what_they_do_not() -> None:
    config = StreamsConfig(variables={}, application_id="app", auto_offset_reset="by_duration:PT1H")
    assert config.auto_offset_reset == HOUR
    with pytest.raises(ConfigError, match=r"auto_offset_reset=.*by_duration:PT1H"):
        StreamsConfig(variables={}, application_id="app", auto_offset_reset="by_duration:1h")
    (source, *_) = Topology().add_source("in", "in", offset_reset=HOUR).resolve("app")[0].nodes
    assert source.offset_reset == HOUR  # type: ignore[union-attr]
    adds: Any = (StreamsBuilder().stream, StreamsBuilder().table, partial(Topology().add_source, "source"))
    for add in adds:
        with pytest.raises(TopologyError, match=r"offset_reset must be .* not 'soonest'"):
            add("in", offset_reset="soonest")


def test_two_streams_of_a_topic_may_write_the_same_policy_in_two_ways() -> None:
    builder = StreamsBuilder()
    builder.stream("in", offset_reset=HOUR).to("one")
    builder.stream("in", offset_reset="by_duration:PT60M").to("two")
    assert builder.build()
    builder.stream("in", offset_reset="earliest").to("three")
    with pytest.raises(TopologyError, match=r"different offset_reset"):
        builder.build()
