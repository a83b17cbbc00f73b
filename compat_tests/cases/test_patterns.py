"""A pattern that matches the names of the application's own topics: it reads what others write, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

pytestmark = pytest.mark.full

COUNT_ALL = replace(COUNT_BY_VALUE, sources=("in", "later"))


def test_a_pattern_that_matches_the_applications_own_topics_counts_what_others_write_only(world: World) -> None:
    """Also of one that starts beside its changelog and its repartition topic, and of a topic that comes while it runs.
    An application that read its own changelog would count its counts, without end."""
    world.input("in", 2, out=2).send(world.groups(500, 50, 20))
    app = world.instance("count-all").start()
    world.processed((BY_VALUE_REPARTITION,))
    app.stop()
    app.start()
    world.feeds["in"].send(world.groups(500, 50, 20))
    world.processed((BY_VALUE_REPARTITION,))
    world.input("later", 2).send(world.groups(500, 50, 20))
    end_and_judge(world, COUNT_ALL, repartitions=(BY_VALUE_REPARTITION,))
    read = {place.topic for place in world.committed()}
    assert read == {world.topic(suffix) for suffix in ("in", "later", BY_VALUE_REPARTITION)}
