"""What is one task's failure for good stays that task's, or ends the process: `task_failed` says which."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from compat_tests.cases.arrivals import PROMPT_S, slowest
from compat_tests.cases.ends import ALONE, ENDED
from compat_tests.cases.failures import CAUSES, KEYS, NOT_OPENED, PARTITIONS, TASK, Cause, Failure, refusals
from compat_tests.cases.steps import generation
from compat_tests.harness.followers import of_tasks
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.rows import Place
from milestones.testing import NotYet


def causes(*short: str) -> pytest.MarkDecorator:
    """All causes; those in `short` in the short selection, too."""
    return pytest.mark.parametrize(
        "cause", [cause if cause in short else pytest.param(cause, marks=pytest.mark.full) for cause in CAUSES]
    )


@pytest.fixture(autouse=True)
def a_store_of_its_own(world: World, cause: str) -> None:
    if cause == NOT_OPENED and world.has("state_manager"):
        pytest.skip("what isn't opened is a sub-topology's, whose tasks all end: see test_state_manager.py")


def others(place: Place) -> list[Place]:
    return [Place(place.topic, number) for number in range(PARTITIONS) if number != place.partition]


def others_are_rolled_back(failed: Failure, most: int) -> None:
    """Each other task so often at most."""
    times = of_tasks(failed.app, "rolled_back_total")
    print(f"so often each task was rolled back: {times}")
    assert len(times) >= PARTITIONS - 1
    assert max(count for task, count in times.items() if task != TASK) <= most


def others_go_on(world: World, cause: Cause, places: Collection[Place]) -> float:
    """What 99 of 100 of their outputs took at most, in seconds."""
    with world.outputs(cause.flows[0].output) as outputs:
        goal = len(outputs.rows) + 2_000
        enough = lambda: outputs.poll() > goal or NotYet("few outputs")  # noqa: E731
        beside = "beside a task that has ended"
        took = slowest(world, outputs, places, enough, beside, keys=KEYS, outputs=cause.outputs)
    world.wait(lambda: world.inputs_committed(places), "the other tasks are committed")
    return took


@causes("user code")  # the time that others' outputs take shows on a calm machine only: about 1 s for a refused record
def test_a_task_that_fails_for_good_ends_alone_and_its_partition_stops_at_the_record(world: World, cause: str) -> None:
    what = CAUSES[cause]
    failed = what.fail(world, task_failed=ALONE)
    app, place = failed.app, failed.place
    app.says(ENDED)
    before, rest = generation(world), others(place)
    if failed.stops_at is None:
        failed = failed._replace(stops_at=world.committed()[place])
    took = others_go_on(world, what, rest)
    assert what.text in app.log(), app.log_tail()
    assert failed.has_stopped(world.committed()[place]), f"{failed}, {world.committed()}"
    assert generation(world) == before
    others_are_rolled_back(failed, 1)
    app.stop()
    failed.mend()
    app.start(refusals=refusals(world))
    end_and_judge(world, *what.flows, crashed=True)
    assert took < PROMPT_S


@pytest.mark.short_under("exactly_once_v2")
@causes("user code")
def test_by_default_a_task_that_fails_for_good_ends_the_process_with_its_exit_code(world: World, cause: str) -> None:
    what = CAUSES[cause]
    failed = what.fail(world)
    failed.app.dies(what.exit_code, what.text)
    failed.mend()
    failed.app.start(refusals=refusals(world))
    end_and_judge(world, *what.flows, crashed=True)


@causes("user code", "refused record")
def test_a_task_that_is_replaced_goes_on_once_the_cause_is_mended(world: World, cause: str) -> None:
    what = CAUSES[cause]
    failed = what.fail(world, task_failed="replace")
    app = failed.app
    app.says(ENDED)
    before = generation(world)
    world.wait(lambda: world.inputs_committed(others(failed.place)), "the other tasks are committed")
    app.says("is opened anew")
    failed.mend()
    world.feeds["in"].send(world.records(100, KEYS))
    world.processed()
    assert generation(world) == before
    # Where nothing tolerates it, they go back for the batch that was refused, and for the record, sent by itself.
    times = 1 if world.has("committed_collector") or (world.has("fencing_tolerance") and world.exactly_once) else 2
    others_are_rolled_back(failed, times * app.log().count(ENDED))
    end_and_judge(world, *what.flows, crashed=True)
