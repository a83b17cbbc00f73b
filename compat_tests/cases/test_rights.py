"""One topic out of many that the application may not read or write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from compat_tests.cases.ends import ENDED
from compat_tests.cases.steps import generation
from compat_tests.harness.cluster import ACLS
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import MakeWorld, World
from compat_tests.random_topologies.interpretation import flows
from compat_tests.random_topologies.plans import Path, Plan

TOPICS, FORBIDDEN = 64, 7
PLAN = Plan(tuple(Path((), "copy", (number,)) for number in range(TOPICS)), (1,) * TOPICS)
"""Copies each topic into another one: as many sub-topologies of one task."""
RIGHTS = {"in": AclOperation.READ, "out": AclOperation.WRITE}
"""By the topics' name, the right that is taken away."""
FAILED = 1
SETTINGS: dict[str, Any] = {
    "num_processing_threads": 3, "session_timeout_ms": 30_000, "transaction_timeout_ms": 30_000,
    "commit_interval_ms": 3_000,
}  # fmt: skip
"""Commits are rare: there is something to commit when the right is taken away."""


@pytest.fixture
def world(make_world: MakeWorld, guarantee: str) -> World:
    """On a broker of its own, which knows rights."""
    return make_world(guarantee, ACLS)


def feed(world: World, numbers: Iterable[int] = range(TOPICS)) -> None:
    for number in numbers:
        world.feeds[f"in{number}"].send(world.records(20, keys=5))


@pytest.mark.full
@pytest.mark.broker_faults
@pytest.mark.parametrize("kind", RIGHTS)
def test_a_topic_of_64_that_may_not_be_used_any_more_stops_its_task_only_and_is_named(world: World, kind: str) -> None:
    world.create(**{f"out{number}": 1 for number in range(TOPICS)})
    for number in range(TOPICS):
        world.input(f"in{number}", 1)
    app = world.instance(f"plan:{PLAN.text()}", **SETTINGS).start(handler="REPLACE_THREAD")
    feed(world)
    world.processed()
    topic, others = world.topic(f"{kind}{FORBIDDEN}"), set(range(TOPICS)) - {FORBIDDEN}
    before = generation(world)
    feed(world, [FORBIDDEN])
    world.cluster.forbid(topic, RIGHTS[kind])
    feed(world)
    if world.has("polling_thread"):
        app.says(ENDED)
        places = world.cluster.places(world.topic(f"in{number}") for number in others)
        world.wait(lambda: world.inputs_committed(places), "the other tasks are committed")
        feed(world, others)
        world.wait(lambda: world.inputs_committed(places), "the other tasks go on")
        assert generation(world) == before
    app.says(topic)
    world.cluster.permit(topic)
    world.processed()
    end_and_judge(world, *flows(PLAN), crashed=True)
