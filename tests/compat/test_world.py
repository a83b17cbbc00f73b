"""What a case's world leaves behind, and what is told of one that fails."""

from __future__ import annotations

from pathlib import Path

import psutil

from compat_tests.harness.brokers import Broker
from compat_tests.harness.cluster import Cluster
from compat_tests.harness.situation import situation
from compat_tests.harness.world import new_world
from milestones.testing import until


def test_a_world_that_is_over_keeps_its_rows_and_no_client_however_long_a_report_holds_it(
    kafka: str, tmp_path: Path
) -> None:
    process = psutil.Process()
    before = process.num_threads()
    with new_world(Broker(kafka), "test_of_worlds", "baseline", "at_least_once", 0, tmp_path) as world:
        world.input("in", 1).send(world.records(3, keys=2))
        assert process.num_threads() > before
    assert len(world.feeds["in"].rows) == 3
    until(lambda: process.num_threads() <= before, "the threads of the world's clients have ended", 10)


def test_a_situation_that_cannot_be_learned_says_why_and_replaces_no_failure() -> None:
    broken = Cluster("127.0.0.1:1")
    broken.admin = None  # type: ignore[assignment]
    assert situation(broken, "app", []).count("can't be told") == 4
