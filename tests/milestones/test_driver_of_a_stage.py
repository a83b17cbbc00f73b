"""The test driver runs a topology as its stage does: what changelogs have, and which updates are emitted."""

from __future__ import annotations

from typing import Any

import pytest

from milestones import Processor, Record, StoreSpec, Streams, StreamsBuilder, serdes
from milestones.common.errors import ConfigError
from milestones.flags import STAGES
from milestones.testing import TopologyTestDriver

BEFORE_M5 = [stage.name for stage in STAGES if stage.name < "m5" or stage.name == "baseline"]
FROM_M5 = ["m5", "m6"]
CACHE = 1 << 20


class PutsTwice(Processor):
    def process(self, record: Record) -> None:
        store = self.context.get_state_store("rows")
        store.put(record.key, "first")
        store.put(record.key, "last")


def puts_twice() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.add_state_store(StoreSpec("rows", key_serde=serdes.STRING, value_serde=serdes.STRING))
    builder.stream("in", key=str, value=str).process(PutsTwice, "rows")
    return builder


def logged(given: Any, **settings: Any) -> list[bytes | None]:
    with TopologyTestDriver(given, **settings) as driver:
        driver.pipe("in", b"k", b"v", 1)
        ((_, outputs),) = driver.produced().items()
        return [output.value for output in outputs]


@pytest.mark.parametrize("stage", BEFORE_M5)
def test_before_m5_a_changelog_has_each_write(stage: str) -> None:
    assert logged(puts_twice(), milestones=stage) == [b"first", b"last"]
    assert logged(puts_twice()) == [b"first", b"last"]


@pytest.mark.parametrize("stage", FROM_M5)
def test_from_m5_on_a_changelog_has_one_record_per_key_and_commit(stage: str) -> None:
    assert logged(puts_twice(), milestones=stage) == [b"last"]


def test_the_stage_is_that_of_a_streams() -> None:
    streams = Streams(puts_twice(), application_id="app", bootstrap_servers="localhost:1", milestones="m6")
    assert logged(streams) == [b"last"]
    assert logged(streams, milestones="m4") == [b"first", b"last"]


def counts_from_two_sources(stage: str) -> int:
    builder = StreamsBuilder()
    doubled = builder.stream("in", key=str, value=str).flat_map_values(lambda value: [value, value])
    doubled.group_by_key().count("counts").to_stream().to("out", value=int)
    with TopologyTestDriver(builder, milestones=stage, statestore_cache_max_bytes=CACHE) as driver:
        driver.pipe("in", b"k", b"v", 1)
        return len(driver.unread("out"))


def test_a_cache_leaves_out_updates_before_m5_and_none_from_then_on() -> None:
    assert [counts_from_two_sources(stage) for stage in BEFORE_M5] == [1] * len(BEFORE_M5)
    assert [counts_from_two_sources(stage) for stage in FROM_M5] == [2, 2]


def test_a_stage_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="m9"):
        TopologyTestDriver(puts_twice(), milestones="m9")
