"""What probes are told: of a client that does what a test says, and of one whose broker goes and comes back."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from milestones import Streams, StreamsBuilder, StreamsState
from milestones.client.health import ClientHealth
from milestones.common.config import StreamsConfig
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.common.metrics import HeartbeatMetrics, Metrics
from milestones.common.testing import StepClock
from milestones.testing import KafkaProbe, until

S = StreamsState
TIMEOUT_S = 90


class Client:
    """A client's health, by what it publishes."""

    def __init__(self, state: StreamsState = S.RUNNING, error: Exception | None = None, hanging: bool = False) -> None:
        self.clock = StepClock()
        metrics = Metrics(self.clock)
        self.heartbeats = metrics.add(HeartbeatMetrics, client_id="app-StreamThread-1-consumer")
        self.heartbeats.publish(self.clock.monotonic_ms())
        shown = SimpleNamespace(state=state, error=error, hanging=hanging)
        config = StreamsConfig(application_id="app", bootstrap_servers="localhost:1")
        self.health = ClientHealth(shown, metrics, config, self.clock)


@pytest.mark.parametrize("state", [S.CREATED, S.REBALANCING, S.PENDING_SHUTDOWN])
def test_a_client_on_its_way_lives_and_is_not_ready(state: StreamsState) -> None:
    health = Client(state).health
    assert health.not_alive() is None
    assert health.not_ready() == state.value


def test_a_client_that_runs_is_ready() -> None:
    health = Client().health
    assert (health.not_alive(), health.not_ready()) == (None, None)


def test_a_client_that_failed_or_hangs_at_its_end_does_not_live() -> None:
    assert Client(S.ERROR, ValueError("a bug")).health.not_alive() == "ERROR: a bug"
    assert Client(S.PENDING_SHUTDOWN, ValueError("hangs"), hanging=True).health.not_alive() == "PENDING_SHUTDOWN: hangs"


def test_a_client_whose_coordinator_is_silent_lives_and_is_not_ready_also_if_nothing_is_published() -> None:
    client = Client()
    client.clock.advance(11_000)
    assert client.health.not_alive() is None
    assert "for 11 s" in (client.health.not_ready() or "")


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_while_the_broker_is_away_an_application_is_not_ready_and_says_so_as_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milestones.client.health.LEAST_SILENCE_MS", 1_000)

    def answer(path: str) -> tuple[int, str]:
        assert streams.metrics_address is not None
        host, port = streams.metrics_address
        try:
            with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    with EmbeddedKafka(tmp_path / "kafka") as broker:
        KafkaProbe(broker.bootstrap_servers).create({"in": 1, "out": 1})
        builder = StreamsBuilder()
        builder.stream("in").to("out")
        streams = Streams(
            builder, application_id="probed", bootstrap_servers=broker.bootstrap_servers, metrics_port=0,
            state_dir=str(tmp_path / "state"), heartbeat_interval_ms=300, session_timeout_ms=45_000,
            request_timeout_ms=2_000,
        )  # fmt: skip
        with streams:
            until(lambda: answer("/readyz")[0] == 200, "it is ready")
            assert answer("/livez") == (200, "ok\n")
            broker.pause()
            until(lambda: answer("/readyz")[0] == 503, "it is not ready")
            assert "no answer from the group's coordinator" in answer("/readyz")[1]
            assert answer("/livez")[0] == 200
            until(lambda: "the coordinator doesn't answer" in caplog.text, "it is logged")
            said = [one for one in caplog.records if "group probed" in one.getMessage()]
            assert [one.levelname for one in said if one.levelno > logging.DEBUG] == ["WARNING"]
            broker.unpause()
            until(lambda: answer("/readyz")[0] == 200, "it is ready")
