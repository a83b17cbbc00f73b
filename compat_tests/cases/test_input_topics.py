"""Input topics that are changed or deleted: keys would move between tasks, so the application stops and says why."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import COPY, COUNT
from compat_tests.cases.steps import proxy_of
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

BAD_TOPIC = 2

pytestmark = pytest.mark.full


def running_count(world: World) -> Instance:
    world.input("in", 2, out=2).send(world.records(1_000, keys=100))
    app = world.instance("count").start()
    world.processed()
    return app


def assert_says(app: Instance, *texts: str) -> None:
    """One line says why it ended."""
    lines = [line for line in app.log().splitlines() if " ERROR " in line]
    assert any(all(text in line for text in texts) for line in lines), f"{texts} isn't said\n{app.log_tail()}"


def test_new_partitions_under_a_running_application_stop_it_with_both_counts(world: World) -> None:
    app = running_count(world)
    world.cluster.grow(world.topic("in"), 3)
    app.dies(BAD_TOPIC)
    assert_says(app, f"source topic {world.topic('in')} had 2 partitions and has 3 now", "milestones reset")


def test_new_partitions_while_it_was_stopped_refuse_a_start_with_state_of_fewer(world: World) -> None:
    app = running_count(world)
    app.stop()
    committed = world.committed()
    world.cluster.grow(world.topic("in"), 3)
    app.start()
    app.dies(BAD_TOPIC)
    changelog = world.topic("counts-changelog")
    assert_says(app, f"{changelog} has 2 partitions, the topology needs 3", "milestones reset")
    assert world.committed() == committed


def test_new_partitions_while_it_was_stopped_are_read_by_an_application_without_state(world: World) -> None:
    feed = world.input("in", 2, out=2)
    feed.send(world.records(500, keys=50))
    app = world.instance("copy").start()
    world.finish(app)
    world.cluster.grow(feed.topic, 3)
    feed.grow(3)
    feed.send(one._replace(key=b"new-" + (one.key or b"")) for one in world.records(500, keys=50))
    app.start()
    end_and_judge(world, COPY)


@pytest.mark.broker_faults
def test_answers_that_an_input_does_not_exist_stop_nothing(world: World) -> None:
    """A broker that has just started may not know a topic yet."""
    feed, proxy = world.input("in", 2, out=2), proxy_of(world)
    world.instance(
        "count", bootstrap_servers=proxy.bootstrap_servers, consumer_topic_metadata_refresh_interval_ms=300,
        consumer_topic_metadata_propagation_max_ms=0,
    ).start()  # fmt: skip
    feed.send(world.records(500, keys=100))
    world.processed()
    proxy.forget(feed.topic, client="*-consumer", times=3).wait(3)
    feed.send(world.records(500, keys=100))
    end_and_judge(world, COUNT)


def test_an_input_deleted_under_a_running_application_stops_it_by_name(world: World) -> None:
    app = running_count(world)
    world.cluster.delete([world.topic("in")])
    app.dies(BAD_TOPIC)
    assert_says(app, world.topic("in"), "was deleted under the running application")
