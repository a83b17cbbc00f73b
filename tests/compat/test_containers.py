"""Where the suite's Kafka comes from, and what is said when it can't come from there. No Docker is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from compat_tests.containers import image, watchdog
from compat_tests.containers.container import KafkaContainer, start_script, why_none
from compat_tests.harness import brokers
from milestones.common.kafka.embedded import EmbeddedKafkaError
from milestones.common.kafka.embedded.properties import CLEAN_SHUTDOWN, FENCED

REFUSALS = {
    "docker": "the command `docker` is missing",
    "debootstrap": "the command `debootstrap` is missing",
}

JAVA = f"""#!/bin/sh
case "$*" in
*StorageTool*) echo format >> runs ;;
*controller.properties)
    echo controller >> runs
    trap 'echo ended >> runs; exit' TERM
    sleep 0.2
    echo fenced >> runs
    echo '{FENCED} 14 partition(s)'
    while :; do sleep 0.02; done ;;
*server.properties) echo server >> runs ;;
esac
"""
"""One that says what it was run for. The broker's former session is ended after a while."""

META, FENCED_FIRST = "data/meta.properties", ["controller", "fenced", "ended", "server"]


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")


def without(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == command else which(name) or f"/bin/{name}")


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_the_embedded_broker_takes_over_and_the_reason_is_said() -> None:
    choice, note = brokers.resolve("auto")
    assert choice == "process"
    assert "the embedded broker takes their place: the Docker engine doesn't answer" in note


@pytest.mark.usefixtures("no_engine")
def test_containers_asked_for_by_name_are_an_error_without_an_engine() -> None:
    with pytest.raises(pytest.UsageError, match=r"--broker testcontainers: the Docker engine doesn't answer"):
        brokers.resolve("testcontainers")


@pytest.mark.parametrize("choice", ["process", "localhost:9092"])
def test_another_broker_asked_for_by_name_is_taken(choice: str) -> None:
    assert brokers.resolve(choice) == (choice, "")


@pytest.mark.parametrize("missing", REFUSALS)
def test_an_image_that_cannot_be_built_says_what_is_missing(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without(missing, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if missing != "docker":
        monkeypatch.setattr(image, "_exists", lambda: False)
    assert image.main([]) == 1
    assert REFUSALS[missing] in capsys.readouterr().err


def test_building_an_image_without_being_root_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(image, "_exists", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert image.main([]) == 1
    assert f"MILESTONES_KAFKA_IMAGE={image.OFFICIAL_IMAGE}" in capsys.readouterr().err


def test_an_image_that_exists_is_not_built_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(image, "_exists", lambda: True)
    assert image.main([]) == 0
    assert f"{image.LOCAL_IMAGE} exists" in capsys.readouterr().err


def test_the_watchdog_of_a_container_that_was_removed_leaves_docker_alone(tmp_path: Path) -> None:
    environment = {**os.environ, "DOCKER_HOST": "no engine would be asked under this name"}
    script = [sys.executable, watchdog.__file__, "a-container"]
    done = subprocess.run(script, input=watchdog.REMOVED, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_container_that_was_never_started_has_no_address_and_is_closed_in_peace() -> None:
    kafka = KafkaContainer()
    assert not kafka.running
    with pytest.raises(EmbeddedKafkaError, match="none before the first start"):
        _ = kafka.bootstrap_servers
    kafka.kill()
    kafka.stop()
    kafka.close()


def test_a_missing_image_is_named_with_the_command_that_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    if why_none(download=True):
        pytest.skip("the Docker engine doesn't answer")
    monkeypatch.delenv("MILESTONES_KAFKA_IMAGE", raising=False)
    for name in ("LOCAL_IMAGE", "OFFICIAL_IMAGE"):
        monkeypatch.setattr(f"compat_tests.containers.container.{name}", "milestones/nowhere:0")
    assert image.BUILD_COMMAND in (why_none() or "")


def started(home: Path, *files: str) -> list[str]:
    """What a container runs when it starts with these files in its home."""
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA)
    java.chmod(0o755)
    (home / "data").mkdir()
    for file in files:
        (home / file).write_text(f"{FENCED} 14 partition(s)\n")
    environment = {**os.environ, "PATH": f"{java.parent}:{os.environ['PATH']}"}
    script = start_script(PurePosixPath(home), ())
    subprocess.run(["sh", "-c", script], env=environment, check=True, capture_output=True, timeout=30)
    return (home / "runs").read_text().split()


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        pytest.param((), ["format", "server"], id="new: it formats its data"),
        pytest.param((META, f"data/{CLEAN_SHUTDOWN}"), ["server"], id="stopped: it just starts"),
        pytest.param((META,), FENCED_FIRST, id="killed: it ends its former session before it starts"),
        pytest.param((META, "fencing.log"), FENCED_FIRST, id="killed: what the last controller said isn't of this one"),
    ],
)
def test_what_a_container_runs_when_it_starts(tmp_path: Path, files: tuple[str, ...], runs: list[str]) -> None:
    assert started(tmp_path, *files) == runs
