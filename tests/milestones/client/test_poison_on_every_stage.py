"""A poisonous record on every stage, with each value of `task_failed`: what status, probes and metrics say of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from milestones.cli.observing import read_metrics
from milestones.common.records import TaskId
from milestones.flags import STAGES
from milestones.testing import NotYet, until
from tests.milestones.app import App

PROGRAM = """
import sys
from milestones import Streams, StreamsBuilder

def amounts(value):
    if value == "bad":
        raise ValueError("card 4111-1111")
    return value

builder = StreamsBuilder()
builder.stream("{app}-in", key=str, value=str).map_values(amounts).to("{app}-out")
streams = Streams(
    builder, application_id="{app}", bootstrap_servers="{kafka}", state_dir={state!r}, metrics_port=0, client_id="a",
    milestones="{stage}", task_failed="{failed}", task_timeout_ms=500, commit_interval_ms=100,
)
raise SystemExit(streams.run())
"""
BAD = TaskId(0, 1)
WAIT_S = 60


class Seen(NamedTuple):
    """What there is to see of an application whose task 0_1 has failed."""

    exit_code: int | None
    ready: str = ""
    role: str = ""
    error: str = ""
    lag: float | None = None
    ended: float | None = None
    others: str = ""


class Process:
    """A process of the application; its log is `log`."""

    def __init__(self, app: App, folder: Path, stage: str, failed: str) -> None:
        program = folder / "program.py"
        state = str(folder / "state")
        program.write_text(PROGRAM.format(app=app.id, kafka=app.kafka, state=state, stage=stage, failed=failed))
        self._app, self._file = app, folder / "log"
        with self._file.open("wb") as log:
            self._process = subprocess.Popen([sys.executable, str(program)], stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._file.read_text()

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def asked(self, path: str) -> tuple[int, str]:
        """What its endpoint answers."""
        line = next(line for line in self.log.splitlines() if "metrics are served at" in line)
        url = line.rpartition(" ")[2].removesuffix("/metrics")
        try:
            with urllib.request.urlopen(url + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def seen(self) -> Seen | None:
        """None while its task hasn't failed for good."""
        if self.exit_code is not None:
            return Seen(self.exit_code)
        with suppress(OSError, StopIteration):
            metrics = self.asked("/metrics")[1]
            if BAD not in read_metrics(metrics).ended:
                return None
            page = json.loads(self.asked("/status")[1])  # asked behind the metrics, it knows as much
            code, why = self.asked("/readyz")
            return Seen(
                None, f"{code} {why.strip()}", page["tasks"][str(BAD)], page["ended"][str(BAD)],
                number(metrics, "kafka_consumer_fetch_manager_records_lag{", 'partition="1"'),
                number(metrics, "kafka_stream_task_ended{", f'task_id="{BAD}"'),
                page["tasks"]["0_0"],
            )  # fmt: skip
        return None

    def end(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(WAIT_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)


def number(metrics: str, name: str, label: str) -> float | None:
    lines = [line for line in metrics.splitlines() if line.startswith(name) and label in line]
    return float(lines[0].rpartition(" ")[2]) if lines else None


BY_NIGHT = ("m1", "m3", "m4", "m5")


@pytest.fixture(
    params=[pytest.param(stage.name, marks=[pytest.mark.nightly] if stage.name in BY_NIGHT else []) for stage in STAGES]
)
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["shutdown_client", "end_task", "replace"])
def failed(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def process(app: App, tmp_path: Path, stage: str, failed: str) -> Iterator[Process]:
    app.create({"in": 2, "out": 1})
    app.write("good", partition=0)
    app.write("good", "bad", "behind it", partition=1)
    process = Process(app, tmp_path, stage, failed)
    yield process
    process.kill()


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_a_poisonous_record_is_seen_whatever_the_stage_and_the_setting(
    process: Process, stage: str, failed: str, app: App
) -> None:
    looks: list[Seen] = []

    def settled() -> Any:
        seen = process.seen()
        if failed == "replace" and "is opened anew" not in process.log:
            return NotYet("it isn't opened anew")
        if seen is None or (seen.exit_code is None and (seen.lag, seen.others) != (2, "running")):
            return NotYet(str(seen))
        looks.append(seen)
        return True

    until(settled, "the task has failed", WAIT_S)
    (seen,) = looks
    print(f"{stage:8} {failed:15} {seen}")
    assert "ValueError: card 4111-1111" in process.log
    if failed == "shutdown_client":
        assert seen == Seen(1)
        return
    assert (seen.ready, seen.role, seen.others) == (f"503 tasks that have ended: {BAD}", "ended", "running")
    assert f"record {app['in']}-1@1: ValueError: card 4111-1111" in seen.error
    assert (seen.lag, seen.ended) == (2, 1)
    assert "4111-1111" not in process.asked("/metrics")[1]
    assert process.end() == 0
