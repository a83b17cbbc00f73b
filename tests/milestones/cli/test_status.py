"""`milestones status`: whom it asks, what it reads, what it does while a group rebalances, and a real application."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import ClassVar

import orjson
import pytest
from confluent_kafka import Consumer
from rich.console import Console

from milestones.cli.application_status import (
    ApplicationStatus,
    GlobalRow,
    Scraped,
    StoreRow,
    application_status,
    inputs_of,
    members_of,
)
from milestones.cli.main import invoke
from milestones.cli.observing import _address, _rebalancing, read_metrics, scrape
from milestones.cli.status import _watch
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.groups import DescribedGroup, DescribedMember
from milestones.common.metrics import (
    ClientMetrics,
    GlobalThreadMetrics,
    Metrics,
    MetricsEndpoint,
    ProcessingThreadMetrics,
    RestorationMetrics,
    StandbyMetrics,
    TaskMetrics,
    ThreadMetrics,
)
from milestones.common.testing import StepClock
from milestones.testing import until
from tests.milestones.app import App
from tests.milestones.cli.status_pictures import (
    GROUP,
    IN,
    PROCESS,
    SEEN,
    A,
    B,
    printed,
    shown,
    stable,
)
from tests.topics import new_topic


def test_inputs_are_those_of_all_tasks_that_run() -> None:
    assert inputs_of(members_of(GROUP, "words")) == [IN[A][0], IN[B][0]]


def test_a_group_that_rebalances_tells_nothing_of_its_members() -> None:
    blank = DescribedMember("id", "alpha", "h", None, b"", b"")
    assert members_of(DescribedGroup("PreparingRebalance", "consumer", "", (blank,)), "words") == []


def test_while_a_group_rebalances_its_members_are_named() -> None:
    blank = DescribedMember("id", "alpha-StreamThread-1-consumer", "h", None, b"", b"")
    group = DescribedGroup("PreparingRebalance", "consumer", "", (blank,) * 9)
    note = _rebalancing(group, shown=False)
    assert note.startswith("rebalancing: alpha-StreamThread-1; their tasks aren't known before the rebalance ends")
    assert "their former tasks are shown" in _rebalancing(group, shown=True)
    lines = printed(application_status("words", group, [], {}, {}, [note]))
    assert lines[0].startswith("words  PreparingRebalance")
    assert lines[2].startswith(note[:80])


@pytest.mark.parametrize(
    "group",
    [
        DescribedGroup("Stable", "connect", "sessioned", ()),
        stable(DescribedMember("id", "other", "h", None, b"\0\3\0\0\0\0", b"")),
        stable(DescribedMember("id", "other", "h", None, b"\0\0", b"")),
    ],
)
def test_another_programs_group_is_refused(group: DescribedGroup) -> None:
    with pytest.raises(MilestonesError, match=r"the group words is (none of consumers|that of another program)"):
        members_of(group, "words")


def test_a_kafka_that_goes_away_while_one_watches_is_a_line_below_what_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Watched:
        answers: ClassVar[list[BaseException]] = [KeyboardInterrupt(), KafkaUnreachableError("no broker told it")]

        def refresh(self) -> ApplicationStatus:
            raise self.answers.pop()

    monkeypatch.setattr("milestones.cli.status.INTERVAL_MS", 0)
    console = Console(file=io.StringIO(), width=100, height=40, force_terminal=True, no_color=True)
    with pytest.raises(KeyboardInterrupt):
        _watch(Watched(), console, shown({PROCESS: SEEN}), None, memory=False)  # type: ignore[arg-type]
    last = console.file.getvalue().rpartition("generation 7")[2]  # type: ignore[attr-defined]
    assert "warm-up 0_1 has caught up" in last
    assert "no broker told it" in last


@pytest.mark.parametrize(
    ("endpoint", "host", "address"),
    [
        ("127.0.0.1:80", "10.0.0.1", "127.0.0.1:80"),
        ("0.0.0.0:80", "10.0.0.1", "10.0.0.1:80"),
        ("[::]:80", "fe80::1", "[fe80::1]:80"),
    ],
)
def test_an_instance_that_listens_everywhere_is_asked_where_the_broker_sees_it(
    endpoint: str, host: str, address: str
) -> None:
    assert _address(endpoint, host) == address


@pytest.fixture
def served() -> Iterator[str]:
    """Metrics of an instance `alpha` with a restoring task, a standby and a thread."""
    metrics, clock = Metrics(StepClock()), StepClock()
    client = metrics.add(ClientMetrics, client_id="alpha")
    client.state.value, client.version.value = "RUNNING", "0.1.0"
    thread = metrics.add(ThreadMetrics, thread_id="alpha-StreamThread-1")
    thread.thread_state.value, thread.commit_age_ms.value = "PARTITIONS_ASSIGNED", 2_500
    task = metrics.add(TaskMetrics, thread_id="alpha-StreamThread-1", task_id="0_0")
    task.restore.total, task.restore_remaining_records_total.value = 30, 10
    standby = metrics.add(StandbyMetrics, thread_id="alpha-StreamThread-1", task_id="0_1")
    standby.standby_records_lag.value = 7
    worker = metrics.add(ProcessingThreadMetrics, thread_id="alpha-ProcessingThread-1-2")
    worker.process.total = 40
    store = metrics.add(RestorationMetrics, thread_id="alpha-StateUpdater-1", task_id="0_0", state_id="counts")
    store.restore.total, store.restore_remaining_records_total.value = 30, 10
    store.restore_remaining_bytes_total.value, store.restore_remaining_seconds.value = 1_000, -1
    everyone = metrics.add(GlobalThreadMetrics, thread_id="alpha-GlobalStreamThread")
    everyone.restore.total, everyone.restore_remaining_records_total.value, everyone.records_lag.value = 50, 5, 6
    for scope in (client, thread, task, standby, worker, store, everyone):
        scope.publish(clock.monotonic_ms())
    endpoint = MetricsEndpoint(metrics, "127.0.0.1", 0)
    yield str(metrics.address)
    endpoint.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is a thread of this process, which may have much to do."""
    monkeypatch.setattr("milestones.cli.observing.SCRAPE_TIMEOUT_S", 30.0)


def test_metrics_are_read_as_instances_serve_them(served: str) -> None:
    assert scrape(served, "alpha-StreamThread-1-consumer") == Scraped(
        "alpha", "RUNNING", "0.1.0", {"alpha-StreamThread-1": "PARTITIONS_ASSIGNED"},
        {
            "alpha-StreamThread-1": {"commit_age_ms": 2_500.0},
            "alpha-ProcessingThread-1-2": {"records": 40.0, "busy": 0.0},
        },
        restored={A: 30}, remaining={A: 10}, standby_lags={B: 7},
        stores={A: (StoreRow("counts", 30, 10, 1_000, None),)},
        globals=GlobalRow(50, 5, 6),
    )  # fmt: skip


def test_metrics_of_another_instance_at_an_outdated_address_do_not_count(served: str) -> None:
    assert scrape(served, "beta-StreamThread-1-consumer") == f"no metrics at {served}: the address belongs to alpha"


def test_an_address_where_nobody_listens_or_nonsense_is_no_error() -> None:
    assert "no metrics at 127.0.0.1:9" in str(scrape("127.0.0.1:9", "alpha"))
    assert "no metrics at nonsense" in str(scrape("nonsense:port", "alpha"))
    with pytest.raises(ValueError):
        read_metrics("<html>}{ 1 2 3 4")


@pytest.mark.kafka
def test_two_instances_with_standbys_are_shown_as_they_are(
    app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    app.create({"in": 2, "out": 1})
    command = ["status", "-a", app.id, "-b", app.kafka]
    assert invoke([*command, "--once"]) == 1
    assert f"there is no group {app.id}" in " ".join(capsys.readouterr().err.split())

    def seen() -> list[tuple[str, str, str, int | None, int | None]]:
        assert invoke([*command, "--json"]) == 0
        raw = orjson.loads(capsys.readouterr().out)
        return sorted(
            (instance["name"], task["task"], task["role"], task["input_lag"], task["behind"])
            for instance in raw["instances"] for thread in instance["threads"] for task in thread["tasks"]
        )  # fmt: skip

    def settled(of_a: str, of_b: str) -> bool:
        wanted = [
            ("a", of_a, "active", 0, None), ("a", of_b, "standby", None, 0),
            ("b", of_a, "standby", None, 0), ("b", of_b, "active", 0, None),
        ]  # fmt: skip
        return seen() == sorted(wanted)

    instances = [
        app.start(app.counting(), client, client_id=client, metrics_port=0, num_standby_replicas=1) for client in "ab"
    ]
    for partition in range(2):
        app.write(*["x"] * 500, partition=partition)
    app.until(lambda: settled("0_0", "0_1") or settled("0_1", "0_0"), "each has one task, and a standby of the other")
    assert invoke([*command, "--once"]) == 0
    text = capsys.readouterr().out
    assert "2 instances, 2 threads, 2 tasks: 2 active, 2 standby; input lag 0" in text
    assert "RUNNING baseline" in text
    assert "leads" in text
    assert re.search(r"^memory [1-9][\d,]* MB, client queues ≤ \d+: program \d+", text, re.M)
    assert invoke([*command, "--memory", "--once"]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^block cache +\d+\.\d of \d+ +\d+\.\d of \d+", table, re.M)
    assert "2 instances" not in table
    for streams in instances:
        streams.close()
    assert invoke([*command, "--once"]) == 1
    assert "no instance runs" in capsys.readouterr().err


@pytest.mark.kafka
def test_the_group_of_a_plain_consumer_is_told_from_ours(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = new_topic(kafka)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": name})
    consumer.subscribe([name])
    until(lambda: (consumer.poll(0.1), consumer.assignment())[1] != [], "the consumer has its partition")
    assert invoke(["status", "-a", name, "-b", kafka, "--once"]) == 1
    assert f"the group {name} is that of another program" in " ".join(capsys.readouterr().err.split())
    consumer.close()
