"""The changelog of a versioned store, on a real broker that compacts each second: it has each version that the history
needs, whatever the times of the records are."""

from __future__ import annotations

from typing import Any

import pytest

from milestones import Processor, Record, StreamsBuilder, serdes, stores
from milestones.common.kafka.topics import Cluster
from milestones.instance import compaction_watch
from milestones.testing import NotYet
from tests.milestones.app import App

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

IN_2015 = 1_420_070_400_000
HISTORY_MS = 3_600_000
SETTINGS = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
"""Of a topic whose segments are short, and compacted as soon as they may be."""


class Versions(Processor):
    """Keeps each price; tells at a question how many versions it has."""

    def process(self, record: Record) -> None:
        prices = self.context.get_state_store("prices")
        if record.value == b"?":
            self.context.forward(record.with_value(len(list(prices.versions(record.key)))))
        else:
            prices.put(record.key, record.value, record.timestamp)


def topology(app: App) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.add_state_store(
        stores.versioned("prices", serdes.STRING, serdes.BYTES, history=HISTORY_MS, changelog_config=SETTINGS)
    )
    builder.stream(app["in"], key=serdes.STRING, value=serdes.BYTES).process(Versions, "prices").to(
        app["out"], key=serdes.STRING, value=serdes.LONG
    )
    return builder


def asked(app: App, at: int) -> int:
    app.write("?", timestamp=at)
    (answer,) = app.take("out", 1)
    return int.from_bytes(answer.value or b"", "big")


@pytest.mark.parametrize(
    ("stage", "guarantee"), [("baseline", "at_least_once"), ("m6", "at_least_once"), ("m6", "exactly_once_v2")]
)
def test_versions_of_long_ago_are_all_there_after_a_restoration(app: App, stage: str, guarantee: str) -> None:
    """Beside a topic with the settings that Kafka Streams gives, which loses most of the same records."""
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    app.create({"in": 1, "out": 1})
    by_clock = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(HISTORY_MS + 86_400_000)}
    app.create({"by-clock": 1}, **SETTINGS, **by_clock)
    streams = app.start(topology(app), **settings)
    for number in range(10):
        at = IN_2015 + 10_000 * number
        app.write(f"price {number}", timestamp=at)
        app.write(f"price {number}", to="by-clock", timestamp=at)
    assert asked(app, IN_2015 + 200_000) == 10
    streams.close()

    def compacted() -> object:
        left = len(app.probe.read(app["by-clock"]))
        return left < 10 or NotYet(f"{left} records are left")

    app.until(compacted, "the broker compacts what it may")
    app.start(topology(app), "with an empty disk", **settings)
    assert asked(app, IN_2015 + 200_000) == 10


def test_versions_that_no_store_needs_are_compacted_away_and_those_of_the_history_stay(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_watch, "FIRST_MS", 0)
    monkeypatch.setattr(compaction_watch, "LOOK_MS", 100)
    app.create({"in": 1, "out": 1})
    streams = app.start(topology(app), processing_guarantee="at_least_once")
    later = IN_2015 + compaction_watch.MARGIN_MS + 2 * HISTORY_MS
    for number in range(10):
        app.write(f"price {number}", timestamp=IN_2015 + 10_000 * number)
        asked(app, IN_2015 + 10_000 * number)  # so that a batch of the changelog has one version
    for number in range(10):
        app.write(f"price {number}", timestamp=later + 10_000 * number)
    assert asked(app, later + 200_000) == 10 + 1, "with the one that holds where the history begins"
    changelog = f"{app.id}-prices-changelog"

    cluster = Cluster({"bootstrap.servers": app.kafka})

    def lag() -> str:
        return cluster.topic_settings([changelog])[changelog]["min.compaction.lag.ms"]

    def compacted() -> object:
        left = len(app.probe.read(changelog))
        return left < 20 or NotYet(f"{left} records are left, with a lag of {lag()}")

    app.until(compacted, "what is older than the history and a week goes")
    streams.close()
    assert lag() == str(2**63 - 1)
    app.start(topology(app), "with an empty disk")
    assert asked(app, later + 200_000) == 10 + 1, "with the one that holds where the history begins"
