"""`milestones status --metrics`: instances without Kafka, by what they serve."""

from __future__ import annotations

import socket
from typing import Any

import orjson
import pytest

from milestones import Streams, StreamsState
from milestones.cli.application_status import Scraped
from milestones.cli.instances import _member
from milestones.cli.main import invoke
from milestones.testing import NotYet
from tests.milestones.app import App


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is a thread of this process, which may have much to do."""
    monkeypatch.setattr("milestones.cli.observing.SCRAPE_TIMEOUT_S", 30.0)


@pytest.fixture
def nobody() -> str:
    """An address at which no program listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_that_no_instance_answers_is_an_error_that_names_the_addresses(
    nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["status", "--metrics", nobody, "--once"]) == 1
    assert f"no instance answers: no metrics at {nobody}: " in " ".join(capsys.readouterr().err.split())


def test_that_kafka_is_away_is_exit_code_3_and_the_error_names_the_other_way(
    nobody: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("milestones.cli.observing.TIMEOUT_MS", 300)
    assert invoke(["status", "-a", "words", "-b", nobody, "--once"]) == 3
    assert "`milestones status --metrics HOST:PORT`" in " ".join(capsys.readouterr().err.split())


def test_the_global_stores_are_no_task_and_tasks_that_have_ended_are() -> None:
    page: dict[str, Any] = {
        "threads": {"a-StreamThread-1": "RUNNING", "a-GlobalStreamThread": "RUNNING"}, "stage": "m3",
        "tasks": {"global": "global", "0_0": "running", "0_1": "standby"}, "ended": {"0_2": "ValueError: bad"},
    }  # fmt: skip
    member = _member("10.0.0.1:9400", Scraped("a"), page)
    assert (member.name, member.described.host) == ("a-StreamThread-1", "10.0.0.1")
    assert sorted(map(str, member.got.active)) == ["0_0", "0_2"]
    assert sorted(map(str, member.got.standby)) == ["0_1"]


@pytest.mark.kafka
@pytest.mark.parametrize(("stage", "thread"), [("baseline", "2 threads"), ("m6", "polling")])
def test_instances_are_shown_without_kafka_as_they_are(
    app: App, stage: str, thread: str, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app.create({"in": 2, "out": 1})
    streams = app.start(
        app.counting(int), client_id="one", milestones=stage, metrics_port=0, num_stream_threads=2,
        task_failed="end_task", task_timeout_ms=5_000,
    )  # fmt: skip
    app.until(lambda: streams.state is StreamsState.RUNNING and len(streams.status().tasks) == 2, "it has all tasks")
    where = address(streams)
    app.until(lambda: "RUNNING" in shown(where, nobody, capsys), "its metrics say so")
    for url in (where, f"http://{where}/metrics"):
        assert invoke(["status", "--metrics", url, "--json"]) == 0
        raw = orjson.loads(capsys.readouterr().out)
        (instance,) = raw["instances"]
        (member,) = instance["threads"]
        assert (raw["application"], raw["state"]) == (app.id, "Kafka isn't asked")
        assert (instance["name"], instance["state"], instance["stage"]) == ("one", "RUNNING", stage)
        assert member["label"] == thread
        assert [(task["task"], task["role"]) for task in member["tasks"]] == [("0_0", "active"), ("0_1", "active")]
    app.write("nonsense", partition=1)
    app.until(lambda: "ended" in shown(where, nobody, capsys), "the task that has ended is seen")
    text = shown(where, nobody, capsys)
    assert "task 0_1 has ended" in text
    assert "invalid literal for int" in text
    lag = "input lag 1 in 2 partitions, as it was last known"
    app.until(lambda: lag in (text := shown(where, nobody, capsys)) or NotYet(text), "Kafka has told the lag")
    assert f"no metrics at {nobody}" in text


def address(streams: Streams) -> str:
    at = streams.metrics_address
    assert at is not None
    return f"{at[0]}:{at[1]}"


def shown(where: str, nobody: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert invoke(["status", "--metrics", where, "--metrics", nobody, "--once"]) == 0
    return " ".join(capsys.readouterr().out.split())
