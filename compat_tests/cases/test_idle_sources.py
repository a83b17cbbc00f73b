"""A source from which nothing comes for longer than Kafka keeps offsets: its application still knows its place."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import MakeWorld, World

RETENTION = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000"}
"""Kafka's defaults are 7 days and 10 minutes."""
SILENCE_S = 90.0


@pytest.fixture
def forgetful_world(make_world: MakeWorld, guarantee: str) -> World:
    """On a broker of its own, which keeps offsets for a minute."""
    return make_world(guarantee, RETENTION)


@pytest.mark.full
@pytest.mark.parametrize("topology", ["count", "count-by-pattern"])
def test_nothing_is_read_again_and_nothing_skipped_after_a_silence_and_a_restart(
    forgetful_world: World, topology: str
) -> None:
    """Kafka forgets offsets of topics that no member's subscription names, also of a group that runs (KIP-211)."""
    world = forgetful_world
    feed = world.input("in", 2, out=2)
    app = world.instance(topology).start()
    feed.send(world.records(1_000, keys=100))
    world.processed()
    committed = world.committed()

    def silence() -> None:
        assert world.committed() == committed, "Kafka has forgotten what was committed"

    world.let_pass(SILENCE_S, "Kafka looks for offsets that have expired", silence)
    app.stop()
    app.start()
    feed.send(world.records(500, keys=100))
    end_and_judge(world, COUNT)
