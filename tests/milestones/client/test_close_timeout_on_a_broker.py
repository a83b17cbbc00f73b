"""An application whose function doesn't return when its process is to end: how long that takes, what is said of it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from milestones.common.clock import SystemClock
from tests.milestones.app import App

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30

APP = """
import sys, time
from milestones import Streams, StreamsBuilder, serdes

def slow(value):
    if value == sys.argv[4]:
        print("in it", flush=True)
        time.sleep(600)
    return value

name, kafka, stage = sys.argv[1:4]
builder = StreamsBuilder()
lines = builder.stream(f"{name}-in", key=serdes.STRING, value=serdes.STRING)
counts = lines.map_values(slow).group_by_key().count("counts")
counts.to_stream().to(f"{name}-out", value=serdes.LONG)
streams = Streams(
    builder, application_id=name, bootstrap_servers=kafka, milestones=stage, state_dir=sys.argv[5],
    processing_guarantee="exactly_once_v2", close_timeout_ms=2_000, session_timeout_ms=6_000,
    auto_offset_reset="earliest",
)
sys.exit(streams.run())
"""


@pytest.mark.parametrize("stage", ["baseline", "m3"])
def test_a_function_that_does_not_return_is_named_and_ends_the_process_with_1_and_nothing_is_lost(
    app: App, tmp_path: Path, stage: str
) -> None:
    app.create({"in": 1, "out": 1})
    program = tmp_path / "app.py"
    program.write_text(APP)

    def start(wait_at: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(program), app.id, app.kafka, stage, wait_at, str(tmp_path / "state")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with start("wait") as process:
        app.write("a")
        first = app.take("out", 1)
        app.write("wait")
        assert process.stdout is not None and process.stderr is not None  # noqa: PT018
        assert process.stdout.readline() == "in it\n", process.stderr.read()
        began_ms = SystemClock().monotonic_ms()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=TIMEOUT_S)
        took_ms = SystemClock().monotonic_ms() - began_ms
    assert process.returncode == 1, log
    assert took_ms < 10_000
    line = APP.splitlines().index("        time.sleep(600)") + 1
    place = re.escape(f"{program}:{line}")
    assert re.search(rf"close_timeout_ms \(2000\): .*StreamThread-1 is in slow, {place}\.", log), log
    with start("nothing") as process:
        second = app.take("out", 1)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, log
    assert [int.from_bytes(record.value or b"") for record in first + second] == [1, 2]
