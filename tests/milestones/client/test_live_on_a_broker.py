"""What changes while an application runs, on a real broker: pauses, threads that end and are replaced."""

from __future__ import annotations

import threading

import pytest

from milestones import StreamsBuilder, StreamsState, ThreadState, UncaughtExceptionResponse, serdes
from milestones.testing import NotYet
from tests.milestones.app import App

pytestmark = pytest.mark.kafka

PARTITIONS = 4
SETTLED = {ThreadState.RUNNING, ThreadState.PARTITIONS_ASSIGNED}


@pytest.fixture(params=["baseline", "m2"])
def stage(request: pytest.FixtureRequest) -> str:
    """Each case runs on the stage where user code is the stream thread's, and on the one where it isn't."""
    return str(request.param)


def test_a_paused_sub_topology_waits_while_the_other_goes_on_and_none_is_lost(app: App, stage: str) -> None:
    app.create(dict.fromkeys(["in", "other", "out", "copies"], PARTITIONS))
    builder = app.counting()
    builder.stream(app["other"], key=serdes.STRING, value=serdes.STRING).to(app["copies"])
    streams = app.start(builder, milestones=stage, num_stream_threads=2, processing_guarantee="exactly_once_v2")
    with app.probe.tail(app["out"]) as out, app.probe.tail(app["copies"]) as copies:

        def send(count: int) -> None:
            for topic in ("in", "other"):
                for number in range(20):
                    app.write(*["v"] * (count // 20), to=topic, key=f"k{number}")

        def joined() -> bool:
            """Three threads have tasks, and all tasks of the sub-topology that isn't paused process."""
            status = streams.status()
            going = [place for task, place in status.tasks.items() if task.subtopology == 1]
            settled = len(status.threads) == 3 and set(status.threads.values()) <= SETTLED
            return settled and going == ["running"] * PARTITIONS

        send(200)
        app.runs(streams, 8, threads=2)
        app.until(lambda: out.has(200) is True and copies.has(200) is True, "all have come out")
        streams.pause("counts")
        streams.add_stream_thread()
        app.until(joined, "the third thread has joined")  # a paused task that moves is restored after the pause
        send(2_000)  # a pause holds for what comes after it: no thread has anything in work
        app.until(lambda: copies.has(2_200), "the other one has processed its records")
        assert out.poll(1.0) == 200
        streams.resume("counts")
        app.until(lambda: out.has(2_200), "the one that was paused has processed its records")
        out.to_the_end()
        copies.to_the_end()
        assert (len(out.rows), len(copies.rows)) == (2_200, 2_200)


def test_user_code_may_remove_stream_threads_and_at_last_its_own(app: App, stage: str) -> None:
    removed: dict[str, str] = {}

    def obey(value: str) -> str:
        if value not in removed:
            removed[value] = ""
            removed[value] = streams.remove_stream_thread()
        return value

    builder = StreamsBuilder()
    builder.stream(app["in"], key=serdes.STRING, value=serdes.STRING).map_values(obey).to(app["out"])
    app.create({"in": PARTITIONS, "out": 1})
    streams = app.start(builder, milestones=stage, num_stream_threads=2, processing_guarantee="exactly_once_v2")
    for left, value in ((1, "first"), (0, "second")):
        app.until(lambda: streams.state is StreamsState.RUNNING, "it runs")
        app.write(value)
        app.until(lambda left=left: len(streams.status().threads) == left or NotYet(str(removed)), f"{left} threads")
    assert streams.state is StreamsState.RUNNING
    assert len(set(removed.values())) == 2


def test_a_stream_thread_that_dies_takes_its_processing_threads_along_and_is_replaced(app: App) -> None:
    app.create({"in": PARTITIONS, "out": 1})
    deaths: list[BaseException] = []

    def poisonous(value: str) -> str:
        if value == "poison" and len(deaths) < 2:
            raise ValueError("user code")
        return value

    def replace(error: BaseException) -> UncaughtExceptionResponse:
        deaths.append(error)
        return UncaughtExceptionResponse.REPLACE_THREAD

    settings = {"milestones": "m2", "num_processing_threads": 2, "task_timeout_ms": 1_000}
    streams = app.streams(app.counting(poisonous), **settings, processing_guarantee="exactly_once_v2")
    streams.set_uncaught_exception_handler(replace)
    streams.start()
    app.runs(streams, PARTITIONS)
    app.write("a", "poison", "b")
    counts = [int.from_bytes(record.value or b"") for record in app.take("out", 3)]
    assert (counts, len(deaths)) == ([1, 2, 3], 2)
    app.runs(streams, PARTITIONS)
    ours = [thread.name for thread in threading.enumerate() if app.id in thread.name and "Processing" in thread.name]
    assert len(ours) == 2, ours
    assert streams.close()
