"""`docs/kubernetes.yaml` fits the program: its settings, paths, ports and times, and what the page says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml  # type: ignore[import-untyped]

from milestones import StreamsConfig
from milestones.cli.main import cli
from milestones.common.config import KEYS
from milestones.common.metrics import Metrics, MetricsEndpoint
from milestones.common.testing import StepClock

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "operations.md").read_text()
MANIFEST: Any = yaml.safe_load((DOCS / "kubernetes.yaml").read_text())
POD = MANIFEST["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
VARIABLES = {one["name"]: one.get("value", "words-0") for one in CONTAINER["env"]}
PROBES = {name: CONTAINER[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")}


class Health:
    """As of a client that lives, and isn't ready."""

    def not_alive(self) -> str | None:
        return None

    def not_ready(self) -> str | None:
        return "REBALANCING"


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> StreamsConfig:
    """What a process has that is started with the manifest's variables."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value.replace("$(POD_NAME)", "words-0"))
    return StreamsConfig()


def test_its_variables_are_settings_and_a_config_can_be_made_of_them(config: StreamsConfig) -> None:
    named = {name.removeprefix("MILESTONES_").lower() for name in VARIABLES} - {"pod_name"}
    assert named - KEYS.keys() == set()
    assert (config.client_id, config.group_instance_id) == ("words-0", "words-0")
    assert CONTAINER["command"][:2] == ["milestones", "run"]
    assert "run" in cli.commands


def test_state_is_on_the_volume_and_the_root_is_read_only(config: StreamsConfig) -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    (claim,) = MANIFEST["spec"]["volumeClaimTemplates"]
    assert str(config.state_dir) == mounts[claim["metadata"]["name"]]
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    assert "/tmp" in mounts.values()


def test_the_grace_period_is_longer_than_an_end_may_take(config: StreamsConfig) -> None:
    grace = POD["terminationGracePeriodSeconds"]
    assert grace * 1_000 >= config.close_timeout_ms + 10_000
    assert f"`terminationGracePeriodSeconds: {grace}`" in PAGE
    assert f"grace period of {grace} s" in PAGE


def test_the_start_may_take_as_long_as_kafka_is_asked(config: StreamsConfig) -> None:
    probe = PROBES["startupProbe"]
    patience_s = probe["periodSeconds"] * probe["failureThreshold"]
    assert patience_s * 1_000 > 2 * config.request_timeout_ms
    assert f"`startupProbe`, {patience_s // 60} min" in PAGE


def test_probes_and_scrapes_go_to_the_port_on_which_the_instance_listens(config: StreamsConfig) -> None:
    (port,) = CONTAINER["ports"]
    annotations = MANIFEST["spec"]["template"]["metadata"]["annotations"]
    assert (config.metrics_host, config.metrics_port) == ("0.0.0.0", port["containerPort"])
    assert annotations["prometheus.io/port"] == str(config.metrics_port)
    assert {probe["httpGet"]["port"] for probe in PROBES.values()} == {port["name"]}


@pytest.fixture
def served() -> Iterator[str]:
    endpoint = MetricsEndpoint(Metrics(StepClock(0)), "127.0.0.1", 0, Health())
    yield f"http://127.0.0.1:{endpoint.port}"
    endpoint.close()


def test_each_probe_asks_a_page_that_there_is(served: str) -> None:
    def status(path: str) -> int:
        try:
            with urlopen(served + path, timeout=30) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    paths = {name: probe["httpGet"]["path"] for name, probe in PROBES.items()}
    annotations = MANIFEST["spec"]["template"]["metadata"]["annotations"]
    assert {name: status(path) for name, path in paths.items()} == {
        "startupProbe": 200, "livenessProbe": 200, "readinessProbe": 503,
    }  # fmt: skip
    assert status(annotations["prometheus.io/path"]) == 200
    assert status("/no-such-page") == 404
