"""Each command that looks at an application, on each stage: with a running instance that serves metrics, and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from milestones.cli.main import invoke
from milestones.flags import STAGES
from tests.milestones.app import App

PROGRAM = """
from milestones import StreamsBuilder, serdes
topology = StreamsBuilder()
lines = topology.stream("{app}-in", key=serdes.STRING, value=serdes.STRING)
lines.group_by_key().count("counts").to_stream().to("{app}-out", key=serdes.STRING, value=serdes.LONG)
"""

Printed = dict[tuple[str, ...], str]

BY_NIGHT = ("m1", "m2", "m3", "m5")


class Commands:
    def __init__(self, app: App, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.program = str(folder / "program.py")
        Path(self.program).write_text(PROGRAM.format(app=app.id))
        self._capture = capture
        self._all = ["-a", app.id, "-b", app.kafka, "-s", f"state_dir={app.path / 'one'}"]

    def prints(self, *words: str, settings: Sequence[str] = (), code: int = 0) -> str:
        given = [] if words[0] in ("describe", "stages", "config") else [*self._all, *settings]
        ended, printed = invoke([*words, *given]), self._capture.readouterr()
        assert ended == code, f"{words}: {printed.out}{printed.err}"
        return printed.out + printed.err


@pytest.mark.kafka
@pytest.mark.parametrize(
    "stage",
    [pytest.param(stage.name, marks=[pytest.mark.nightly] if stage.name in BY_NIGHT else []) for stage in STAGES],
)
def test_every_command_that_looks_works_on_every_stage(
    app: App, stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app.create({"in": 2, "out": 1})
    snapshots = ["-s", f"snapshot_url=file://{tmp_path / 'snapshots'}"]
    commands = Commands(app, tmp_path, capsys)
    streams = app.start(
        app.counting(), milestones=stage, metrics_port=0, client_id="alpha", snapshot_url=f"file://{tmp_path}/snapshots"
    )
    app.write("x", "x")
    app.until(lambda: len(streams.status().tasks) == 2, "it has both tasks")
    app.take("out", 2)
    capsys.readouterr()

    (alpha,) = orjson.loads(commands.prints("status", "--json"))["instances"]
    assert (alpha["name"], alpha["state"], alpha["unseen"]) == ("alpha", "RUNNING", None)
    assert [task["task"] for thread in alpha["threads"] for task in thread["tasks"]] == ["0_0", "0_1"]
    for how in ((), ("--once",), ("--tasks",), ("--threads",), (commands.program,)):
        assert f"RUNNING {stage}" in commands.prints("status", *how)
    assert "still has members (alpha" in commands.prints("reset", code=1)

    streams.close()
    assert "no instance runs" in " ".join(commands.prints("status", "--json", code=1).split())
    assert "counts" in commands.prints("state", "show", commands.program)
    assert "counts" in commands.prints("state", "verify", commands.program)
    for layout in ("import", "export"):
        commands.prints("state", layout, commands.program)
    for how in ((), ("--verify",), ("--prune",)):
        commands.prints("snapshots", commands.program, *how, settings=snapshots)
    assert f"{app.id}-counts-changelog" in commands.prints("reset", commands.program)
    assert "Sub-topology: 0" in commands.prints("describe", commands.program)
    assert "flowchart" in commands.prints("describe", commands.program, "--mermaid")
    assert stage in commands.prints("stages")
    assert "application_id" in commands.prints("config")
