"""`milestones run --workers 2` on a real broker: what the command promises when one of its processes is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from milestones.cli.main import invoke
from milestones.testing import NotYet, until
from milestones.workers.counting import cores
from tests.milestones.app import App

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

PROGRAM = """
from milestones import StreamsBuilder, serdes
topology = StreamsBuilder()
lines = topology.stream("{app}-in", key=serdes.STRING, value=serdes.STRING)
lines.group_by_key().count("counts").to_stream().to("{app}-out", key=serdes.STRING, value=serdes.LONG)
"""
KEYS = [f"k{number}" for number in range(20)]
PARTITIONS = 4
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


class Command:
    """`milestones run --workers N`, which can be started once more on the same state."""

    def __init__(self, app: App, workers: str = "2", **settings: object) -> None:
        self._program = app.path / "program.py"
        self._program.write_text(PROGRAM.format(app=app.id))
        defaults = {
            "state_dir": app.path / "state", "metrics_port": 0, "commit_interval_ms": 100,
            "processing_guarantee": "exactly_once_v2", "auto_offset_reset": "earliest", "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 500, "transaction_timeout_ms": 10_000,
        }  # fmt: skip
        given = [f"-s{key}={value}" for key, value in {**defaults, **settings}.items()]
        self._arguments = [str(self._program), "--workers", workers, "-a", app.id, "-b", app.kafka, *given]
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._starts += 1
        command = [sys.executable, "-m", "milestones.cli", "run", *self._arguments]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    @property
    def log_file(self) -> Path:
        return self._program.with_name(f"log-{self._starts}")

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def must_live(self) -> None:
        assert self.running.poll() is None, self.log

    @property
    def address(self) -> str:
        found = re.search(r"metrics of all workers are served at http://(\S+)/metrics", self.log)
        assert found is not None
        return found[1]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def is_ready(self) -> object:
        if "metrics of all workers" not in self.log:
            return NotYet("the port isn't open")
        try:
            return self.get("/readyz") == "ok\n"
        except urllib.error.HTTPError as error:
            return NotYet(error.read().decode())

    def until_ready(self) -> None:
        until(self.is_ready, "all workers are ready", 120, self.must_live)

    def workers(self) -> dict[int, int]:
        """The process of each worker."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parts = (entry / "cmdline").read_bytes().decode().split("\0")
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if parent == self.running.pid and "--worker" in parts:
                    found[int(parts[parts.index("--worker") + 1].partition("/")[0])] = int(entry.name)
        return found

    def end(self) -> None:
        self.running.terminate()
        assert self.running.wait(120) == 0, self.log


def threads(pid: int) -> list[str]:
    return [(path / "comm").read_text().strip() for path in Path(f"/proc/{pid}/task").iterdir()]


def feed(app: App, count: int) -> None:
    for key in KEYS:
        app.write(*["v"] * count, key=key)


def counts(app: App, of_each: int) -> dict[str, list[int]]:
    """All outputs, by key, once there are as many as each key has records."""
    with app.probe.tail(app["out"]) as tail:
        until(lambda: tail.has(of_each * len(KEYS)), "all outputs are there", 120)
        found = defaultdict[str, list[int]](list)
        for record in tail.rows:
            assert record.key is not None
            assert record.value is not None
            found[record.key.decode()].append(int.from_bytes(record.value, "big"))
    return dict(found)


@LINUX
@pytest.mark.parametrize("stage", ["baseline", pytest.param("m6", marks=pytest.mark.nightly)])
def test_a_killed_worker_ends_the_command_with_a_line_and_after_the_next_start_every_output_is_there_once(
    app: App, stage: str
) -> None:
    app.create({"in": PARTITIONS, "out": PARTITIONS})
    command = Command(app, milestones=stage)
    command.start()
    try:
        command.until_ready()
        feed(app, 50)
        until(lambda: 'records":0' not in command.get("/status").replace(" ", ""), "both work", 60, command.must_live)
        feed(app, 50)
        os.kill(command.workers()[2], signal.SIGKILL)
        feed(app, 50)
        assert command.running.wait(60) == 1
        assert command.log.splitlines()[-1].endswith("ended with exit code 1: worker 2/2 was killed by SIGKILL")
        assert command.workers() == {}
        command.start()
        command.until_ready()
        feed(app, 50)
        assert counts(app, 200) == {key: list(range(1, 201)) for key in KEYS}
        command.end()
    finally:
        command.running.kill()
        command.running.wait()


@LINUX
def test_a_killed_parent_leaves_no_worker_and_the_command_can_be_started_at_once(app: App) -> None:
    app.create({"in": PARTITIONS, "out": PARTITIONS})
    command = Command(app)
    command.start()
    try:
        command.until_ready()
        assert [name for name in threads(command.running.pid) if name.startswith("rdk")] == []
        assert [name for name in threads(command.workers()[1]) if name.startswith("rdk")] != []
        feed(app, 100)
        before = command.workers()
        command.running.kill()
        command.running.wait()
        until(lambda: not any(Path(f"/proc/{pid}/fd/0").exists() for pid in before.values()), "no worker lives", 10)
        command.start()
        feed(app, 100)
        assert counts(app, 200) == {key: list(range(1, 201)) for key in KEYS}
        command.end()
    finally:
        command.running.kill()
        command.running.wait()


def test_one_port_and_the_status_show_all_workers(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    app.create({"in": PARTITIONS, "out": PARTITIONS})
    command = Command(app, client_id="pod")
    command.start()
    try:
        command.until_ready()
        families = list(text_string_to_metric_families(command.get("/metrics")))
        assert len(families) == len({family.name for family in families}) > 100
        assert {sample.labels["worker"] for family in families for sample in family.samples} == {"1", "2"}
        assert command.get("/livez") == "ok\n"

        def instances(*how: str) -> list[dict[str, Any]]:
            capsys.readouterr()
            assert invoke(["status", *how, "--json"]) == 0
            found: list[dict[str, Any]] = orjson.loads(capsys.readouterr().out)["instances"]
            return found

        def run(*how: str) -> bool:  # a worker that is ready may still take part in the rebalance of the other's start
            return [one["state"] for one in instances(*how)] == ["RUNNING", "RUNNING"]

        for how in (["-a", app.id, "-b", app.kafka], ["--metrics", command.address]):
            until(lambda how=how: run(*how), "both run", 60, command.must_live)
            shown = instances(*how)
            assert [one["name"] for one in shown] == ["pod-1", "pod-2"]
            assert [one["worker"].partition("/")[0] for one in shown] == ["1", "2"]
            assert [one["unseen"] for one in shown] == [None, None]
        assert (app.path / "state" / app.id).is_dir()
        assert (app.path / "state" / "worker-2" / app.id).is_dir()
        command.end()
    finally:
        command.running.kill()
        command.running.wait()


def test_auto_starts_no_more_workers_than_the_input_has_partitions(app: App) -> None:
    app.create({"in": 1, "out": 1})
    command = Command(app, workers="auto")
    if cores() == 1:
        pytest.skip("a machine with one core has one worker anyhow")
    command.start()
    try:
        command.until_ready()
        assert '{worker="1"} 1\n' in command.get("/metrics")
        assert 'worker="2"' not in command.get("/metrics")
        command.end()
    finally:
        command.running.kill()
        command.running.wait()

