"""An instance is one member of the group, and what is one task's failure stays that task's."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.cases.arrivals import Load, percentile
from compat_tests.cases.calls import failing
from compat_tests.cases.ends import ENDED, ends_alone
from compat_tests.cases.flows import CALLS, COPY, COUNT
from compat_tests.cases.steps import generation
from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.placement import partition_of
from compat_tests.oracles.rows import Place, Row
from milestones.testing import Not

KEYS = 200
PARTITIONS = 6
FAILED = 1
THREADS: dict[str, Any] = {"num_stream_threads": 1, "num_processing_threads": 3}
PATIENCE_MS = 5_000
"""`task_timeout_ms`: how long user code is tried again."""
PROMPT_S = 1.0
"""What 99 of 100 outputs of the other tasks take at most."""
LIMIT, TOO_LARGE = 20_000, 50_000
"""Bytes that the output topic takes, and of a record that is too large for it."""


@pytest.fixture(autouse=True)
def _polls_in_one_thread(world: World, request: pytest.FixtureRequest) -> None:
    if not world.has("polling_thread") and "ends" not in request.node.name:
        pytest.skip("each stream thread is a member of its own")


@pytest.mark.parametrize("static", [None, pytest.param("me", marks=pytest.mark.full)], ids=["dynamic", "static"])
def test_threads_come_and_go_without_a_rebalance_and_with_the_last_one_the_member_leaves(
    world: World, static: str | None
) -> None:
    feed = world.input("in", PARTITIONS, out=PARTITIONS)
    app = world.instance("count", group_instance_id=static, **THREADS).start()
    feed.send(world.records(300, KEYS))
    world.processed()
    assert len(world.members()) == 1
    before = generation(world)
    for change in [Instance.add_thread] * 5 + [Instance.remove_thread] * 7:
        feed.send(world.records(50, KEYS))
        change(app)
    feed.send(world.records(100, KEYS))
    world.processed()
    assert generation(world) == before
    assert "restored" not in app.log().rpartition("stream thread removed")[2]
    app.remove_thread()
    world.wait(lambda: not world.members() or Not(str(world.members())), "the member has left")
    feed.send(world.records(100, KEYS))
    app.add_thread()
    end_and_judge(world, COUNT)


def fails_in_user_code(world: World, **settings: Any) -> tuple[Instance, Row, Any]:
    """An application one of whose tasks fails at a record, the record, and what mends that."""
    feed = world.input("in", PARTITIONS, out=PARTITIONS)
    app = world.instance("calls", task_timeout_ms=PATIENCE_MS, **THREADS).start(**settings)
    feed.send(world.records(200, KEYS))
    world.processed()
    call = failing(world, 0, "no-answer")
    *_, row = feed.send([*world.records(50, KEYS), call.sent])
    return app, row, call.release


def fails_at_the_broker(world: World, **settings: Any) -> tuple[Instance, Row, Any]:
    """The same with an output that Kafka refuses."""
    world.cluster.create({world.topic("out"): PARTITIONS}, {"max.message.bytes": str(LIMIT)})
    feed = world.input("in", PARTITIONS)
    app = world.instance("copy", **THREADS).start(**settings)
    feed.send(world.records(200, KEYS))
    world.processed()
    key = next(key for key in (b"k%d" % n for n in range(KEYS)) if partition_of(key, PARTITIONS) == 0)
    (row,) = feed.send([Sent(key, b"x" * TOO_LARGE, FIRST_TIMESTAMP + 1_000)])

    def mend() -> None:
        world.cluster.set_topic(world.topic("out"), {"max.message.bytes": str(10 * TOO_LARGE)})

    return app, row, mend


OUTPUTS = {"user code": 2, "refused record": 1}
"""Of each input."""
CAUSES = {
    "user code": (fails_in_user_code, CALLS, "no-answer"),
    "refused record": (fails_at_the_broker, COPY, "refuse"),
}


def others(world: World, row: Row) -> list[Place]:
    return [Place(row.topic, number) for number in range(PARTITIONS) if number != row.partition]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_task_that_fails_for_good_ends_alone_and_its_partition_stops_at_the_record(world: World, cause: str) -> None:
    fail, flow, text = CAUSES[cause]
    app, row, mend = fail(world)
    if not ends_alone(world):
        app.dies(FAILED, text)
    else:
        before, rest = generation(world), others(world, row)
        app.says(ENDED)
        with world.outputs() as outputs:
            goal, load = len(outputs.rows) + 2_000, Load(world, outputs, keys=KEYS, outputs=OUTPUTS[cause])

            def fed() -> object:
                load()
                return outputs.poll() > goal or Not("few outputs")

            world.wait(fed, "the other tasks go on")
            world.wait(lambda: world.inputs_committed(rest), "the other tasks are committed")
        took = load.latencies.of(rest)
        print(f"beside a task that has ended the others' outputs took {percentile(took, 99):.2f} s (p99)")
        assert percentile(took, 99) < PROMPT_S
        assert world.committed()[row.place] == row.offset
        assert generation(world) == before
        app.stop()
    mend()
    app.start()
    end_and_judge(world, flow, crashed=True)


@pytest.mark.parametrize("cause", CAUSES)
def test_with_replace_thread_a_task_that_has_ended_goes_on_once_the_cause_is_mended(world: World, cause: str) -> None:
    if not ends_alone(world):
        pytest.skip("the whole thread is replaced")
    fail, flow, _ = CAUSES[cause]
    app, row, mend = fail(world, handler="REPLACE_THREAD")
    before = generation(world)
    app.says(ENDED)
    world.wait(lambda: world.inputs_committed(others(world, row)), "the other tasks are committed")
    app.says("is opened anew")
    mend()
    world.processed()
    assert generation(world) == before
    end_and_judge(world, flow, crashed=True)
