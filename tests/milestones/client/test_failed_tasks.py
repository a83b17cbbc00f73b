"""What a client says, and does, of tasks that have failed for good."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milestones.client.health import ClientHealth
from milestones.client.status_page import page_of
from milestones.common.config import StreamsConfig
from milestones.common.errors import ProcessingError
from milestones.common.metrics import EndedTaskMetrics, StateDatabaseMetrics
from milestones.common.records import TaskId
from milestones.instance.context import ThreadReport, UncaughtExceptionResponse
from milestones.instance.states import StreamsState, ThreadState
from tests.milestones.client.fake_threads import Client, FakeThread
from tests.milestones.client.test_health import Client as Probed

A, B = TaskId(0, 0), TaskId(0, 1)
FAILED = ProcessingError("user code", A)


def report(thread: FakeThread, last: Exception | None = None, **tasks: str) -> ThreadReport:
    told = {TaskId.parse(task.removeprefix("t")): role for task, role in tasks.items()}
    ended = {task: "user code" for task, role in told.items() if role == "ended"}
    return ThreadReport(thread.name, told, {}, {}, 0, 1, ended=ended, last=last)


@pytest.fixture
def client(fake_threads: None) -> Client:
    """Two threads that are RUNNING."""
    client = Client(num_stream_threads=2).begin()
    for thread in FakeThread.all:
        for state in (ThreadState.STARTING, ThreadState.PARTITIONS_ASSIGNED, ThreadState.RUNNING):
            thread.moves(state)
    client.settle()
    assert client.supervisor.state is StreamsState.RUNNING
    return client


def test_a_client_lives_as_long_as_a_task_of_one_of_its_threads_does(client: Client) -> None:
    first, second = FakeThread.all
    first.context.notify(report(first, FAILED, t0_0="ended"))
    client.settle()
    second.context.notify(replace(report(second), generation=0))  # before it got its task
    client.settle()
    second.context.notify(report(second, None, t0_1="running"))
    client.settle()
    assert client.supervisor.state is StreamsState.RUNNING
    assert client.supervisor.status().ended == {A: "user code"}
    second.context.notify(report(second, FAILED, t0_1="ended", t0_2="standby"))
    assert client.ended().supervisor.state is StreamsState.ERROR
    assert client.supervisor.error is FAILED


def test_a_client_without_any_task_lives(client: Client) -> None:
    for thread in FakeThread.all:
        thread.context.notify(report(thread))
    client.settle()
    assert client.supervisor.state is StreamsState.RUNNING


def test_to_end_a_task_is_an_answer_about_a_task_only(client: Client) -> None:
    client.supervisor.handler = lambda _: UncaughtExceptionResponse.END_TASK
    assert client.supervisor._decide(FAILED, of_task=True) is UncaughtExceptionResponse.END_TASK
    assert client.supervisor._decide(FAILED) is UncaughtExceptionResponse.SHUTDOWN_CLIENT


def test_the_page_of_a_client_has_texts_of_errors_by_task(client: Client) -> None:
    first, _ = FakeThread.all
    first.context.notify(report(first, None, t0_0="ended", t0_1="running"))
    client.settle()
    page = page_of(client.supervisor.status())
    assert (page["state"], page["ended"]) == ("RUNNING", {"0_0": "user code"})
    assert page["tasks"] == {"0_0": "ended", "0_1": "running"}


def ready(probed: Probed, **settings: Any) -> ClientHealth:
    """The health of the same client with these settings."""
    old = probed.health
    config = StreamsConfig(application_id="app", bootstrap_servers="localhost:1", **settings)
    return ClientHealth(old._client, old._metrics, config, probed.clock)


def test_an_instance_with_a_task_that_has_ended_is_not_ready_unless_it_is_told_to_be() -> None:
    probed = Probed()
    metrics = probed.health._metrics
    scope = metrics.add(EndedTaskMetrics, thread_id="app-StreamThread-1", task_id="0_1")
    assert probed.health.not_ready() == "tasks that have ended: 0_1"
    assert ready(probed, readiness="running").not_ready() is None
    metrics.remove(scope)
    assert probed.health.not_ready() is None


@pytest.mark.parametrize(("state", "said"), [(StreamsState.RUNNING, ""), (StreamsState.REBALANCING, "REBALANCING: ")])
def test_an_instance_whose_disk_is_full_is_not_ready_and_says_so_also_as_it_starts(
    state: StreamsState, said: str
) -> None:
    probed = Probed(state)
    scope = probed.health._metrics.add(StateDatabaseMetrics, subtopology_id="1")
    scope.writes_wait.value = 1
    scope.publish(0)
    assert probed.health.not_ready() == f"{said}the disk of the state is full, of sub-topologies: 1"
    scope.writes_wait.value = 2  # is being mended, and serves
    scope.publish(0)
    assert probed.health.not_ready() == (said.removesuffix(": ") or None)
