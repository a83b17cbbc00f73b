"""One application by Java and by us in turn, on one input, against Java alone: see `compat_tests/takeover`."""

from __future__ import annotations

import pytest

from compat_tests import EOS
from compat_tests.harness.world import World
from compat_tests.takeover.java_instance import JavaInstance, java_class_path
from compat_tests.takeover.parts import Application
from compat_tests.takeover.story import TakeOver
from milestones.common.kafka.embedded.errors import JarsError, JavaNotFoundError

FEW, MANY = 4_000, 200_000
SLOWLY_US = 3_000
"""With few records: a leg takes some seconds for its portion, and is ended in the middle."""
KILLS = 20
LONG_S = 1_800


@pytest.fixture(autouse=True, scope="module")
def _java() -> None:
    try:
        java_class_path()
    except (JavaNotFoundError, JarsError) as error:
        pytest.skip(f"Java or Kafka Streams' jars can't be had here: {error}")


def slowly(world: World, *parts: str) -> Application:
    all_parts = Application(world.application_id, pause_us=SLOWLY_US)
    return Application(world.application_id, parts or all_parts.parts, SLOWLY_US)


@pytest.mark.full
def test_java_ours_java_ours_is_the_same_as_java_alone(world: World) -> None:
    story = TakeOver(world, slowly(world), FEW, legs=4)
    for instance in (story.java, story.ours) * 2:
        story.leg(instance)
    story.run_alone()
    story.judge()


@pytest.mark.short_under(EOS)
def test_either_side_goes_on_where_the_other_one_was_killed(world: World) -> None:
    story = TakeOver(world, slowly(world), FEW, legs=4)
    story.leg(story.java, kill=True)
    story.leg(story.ours, kill=True)
    story.leg(story.java)
    story.leg(story.ours)
    story.run_alone()
    story.judge()


@pytest.mark.full
def test_what_we_have_begun_goes_on_in_java_with_the_topics_that_we_have_made(world: World) -> None:
    story = TakeOver(world, slowly(world), FEW, legs=4)
    for instance in (story.ours, story.java) * 2:
        story.leg(instance)
    story.run_alone()
    story.judge()


@pytest.mark.full
def test_what_java_itself_does_not_go_on_with_is_as_java_without_a_restart_has_it(world: World) -> None:
    story = TakeOver(world, Application(world.application_id, ("held", "waiting-join"), 200), 12_000, legs=4)
    for kill in (False, world.exactly_once, False, False):
        story.leg(story.ours, kill=kill)
    story.run_alone()
    story.judge()


@pytest.mark.full
@pytest.mark.timeout(LONG_S)
def test_many_records_by_java_ours_java_ours(world: World) -> None:
    story = TakeOver(world, Application(world.application_id, pause_us=20), MANY, legs=4)
    for instance in (story.java, story.ours) * 2:
        story.leg(instance)
    story.run_alone()
    story.judge()


@pytest.mark.full
@pytest.mark.timeout(LONG_S)
def test_many_records_with_many_kills_of_ours_and_one_of_java(world: World) -> None:
    story = TakeOver(world, Application(world.application_id, pause_us=20), MANY, legs=KILLS + 4)
    story.leg(story.java)
    for number in range(KILLS):
        story.leg(story.ours, kill=True, alike=number + 1 < KILLS)
    story.leg(story.java, kill=True)
    story.leg(story.java)
    story.leg(story.ours)
    story.run_alone()
    story.judge()


MEMBER_FOR_LONG = {"consumer.session.timeout.ms": 30_000}
"""Longer than a process takes to start, on whatever machine."""


def test_a_java_instance_in_the_group_is_named_to_ours_which_ends(plain_world: World) -> None:
    world = plain_world
    story = TakeOver(world, slowly(world, "windows", "processor"), 100, legs=1)
    java, ours = story.java.start(), story.ours
    java.says("client is RUNNING")
    ours.start().dies(1, "INCONSISTENT_GROUP_PROTOCOL", "java-StreamThread-1-consumer on ", "which speak stream")
    assert "such as a Java instance of the application" in ours.log()
    # As Kafka Streams does by default: it goes, and is still a member.
    java.stop()
    java.start(stays=True, **MEMBER_FOR_LONG).says("client is RUNNING")
    java.stop()
    ours.start().dies(1, "INCONSISTENT_GROUP_PROTOCOL", "session.timeout.ms is over (45 s by default)", "LEAVE_GROUP")
    story.await_nobody()
    story.leg(ours)


def test_an_instance_of_ours_in_the_group_ends_java_which_says_so(plain_world: World) -> None:
    world = plain_world
    story = TakeOver(world, slowly(world, "windows", "processor"), 100, legs=1)
    ours = story.ours.start()
    ours.says("client is RUNNING")
    story.java.start().dies(1, "InconsistentGroupProtocolException")
    ours.must_live()
    ours.stop()
    story.await_nobody()
    story.leg(story.java)


def test_a_topology_that_is_another_one_than_javas_is_told(plain_world: World) -> None:
    world = plain_world
    story = TakeOver(world, slowly(world, "aggregate", "closed-sessions"), 200, legs=1)
    story.leg(story.java)
    other = slowly(world, "closed-sessions", "aggregate")
    ours = world.instance(str(other), "ours-another", num_stream_threads=1).start()
    # A store of sessions has the name now that the aggregate's store had.
    ours.dies(4, "which begin empty", "compare `describe()` of both", "is no row of a session store")


def test_javas_state_directory_is_refused(plain_world: World) -> None:
    story = TakeOver(plain_world, slowly(plain_world, "processor"), 100, legs=1)
    java = JavaInstance(plain_world, story.application, "shared", state_dir=story.ours.state_dir)
    story.leg(java)
    story.ours.start().dies(4, "which isn't ours: choose another state_dir")
