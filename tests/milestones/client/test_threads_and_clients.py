"""How many threads and Kafka clients an instance has on a real broker, and what becomes of one without a task."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from milestones import StreamsState
from tests.docs.test_architecture import THREADS, patterns, rows, section
from tests.milestones.app import App

pytestmark = pytest.mark.kafka

POLLING, PROCESSING = 2, 2
"""Stream threads to m3, processing threads from m2 on."""


def documented(stage: str) -> dict[str, int]:
    """The threads of the page that are always there, with the number that it says, for an instance of `POLLING` stream
    threads and `PROCESSING` processing threads."""
    polls = POLLING if stage < "m4" else 1
    numbers = {
        "one per client": 1,
        "`num_stream_threads`": POLLING,
        "`num_processing_threads` per client": PROCESSING,
        "one per thread that polls": polls,
        "one per thread that polls, with state": polls,
        "one per transactional producer, from its first call on": polls,
    }
    names = patterns(stage)
    table = rows(section(THREADS, "## The threads"))
    return {row[0]: numbers[row[3]] for row in table if row[0] in names and row[3] in numbers}


def clients() -> set[str]:
    """The threads of this process that serve a Kafka client each."""
    named = {path.parent.name: path for path in Path("/proc/self/task").glob("*/comm")}
    return {thread for thread, path in named.items() if path.exists() and path.read_text().strip() == "rdk:main"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the names of a library's threads")
@pytest.mark.parametrize(("stage", "kafka_clients"), [("m2", 3 * POLLING + 1), ("m4", 4), ("m6", 4)])
def test_an_instance_has_as_many_threads_and_kafka_clients_as_the_page_says(
    app: App, stage: str, kafka_clients: int
) -> None:
    app.create({"in": 4, "out": 1}).write("v")
    threads_before, clients_before = {thread.ident for thread in threading.enumerate()}, clients()
    threads = {"num_stream_threads": POLLING, "num_processing_threads": PROCESSING}
    streams = app.start(app.counting(), milestones=stage, processing_guarantee="exactly_once_v2", **threads)
    app.runs(streams, tasks=4, threads=POLLING if stage < "m4" else 1 + PROCESSING)
    app.until(lambda: app.probe.read(app["out"]), "a count is committed")
    here = [thread.name for thread in threading.enumerate() if thread.ident not in threads_before]
    names = patterns(stage)
    found = Counter(word for word in documented(stage) for name in here if names[word].fullmatch(name))
    assert found == documented(stage)
    assert len(found) >= 7
    assert len(clients() - clients_before) == kafka_clients, "a consumer, a producer, a restore consumer; an admin"


@pytest.mark.parametrize("stage", ["baseline", "m6"])
def test_instances_without_a_task_run_and_one_of_them_goes_on_where_the_owner_ends(app: App, stage: str) -> None:
    app.create({"in": 1, "out": 1})
    all_of_them = [app.start(app.counting(), name, milestones=stage) for name in ("one", "two", "three")]

    def owners() -> list[int]:
        return [len(streams.status().tasks) for streams in all_of_them]

    for number in range(3):
        app.until(lambda: sum(owners()) == 1, "one of them has the task")
        app.until(lambda: all(one.state is StreamsState.RUNNING for one in all_of_them), "all run")
        app.write("v", "v")
        counts = [int.from_bytes(record.value or b"", "big") for record in app.take("out", 2)]
        assert counts == [2 * number + 1, 2 * number + 2]
        all_of_them.pop(owners().index(1)).close()
