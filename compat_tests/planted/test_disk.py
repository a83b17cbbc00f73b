"""Planted: threads that poll and use files or stores, and some that may. No broker."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compat_tests.apps.disk import USED, DiskWatch
from compat_tests.harness.instance import ROOT
from compat_tests.oracles.disk import nothing_used
from compat_tests.oracles.findings import kinds
from milestones.baseline.processing import InlineProcessing
from milestones.common.testing.clock import StepClock

POLLING, STREAM, OTHER = "app-PollingThread", "app-StreamThread-12", "app-StreamThread-1-consumer-membership"


def in_a_thread(name: str, does: Callable[[], object]) -> None:
    thread = threading.Thread(target=does, name=name)
    thread.start()
    thread.join()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for record in caplog.records if (message := record.getMessage()).startswith(USED)]


@pytest.mark.parametrize(("log", "found"), [(f"12:00:00 {USED}open 'x': f:1\nsomething else", {"disk"}), ("", set())])
def test_what_a_process_says_of_its_disk_is_found(log: str, found: set[str]) -> None:
    assert kinds(nothing_used("one", log)) == found


@pytest.mark.parametrize(("name", "times"), [(POLLING, 1), (STREAM, 1), (OTHER, 0), ("app-ProcessingThread-1-1", 0)])
def test_a_file_that_a_thread_opens_is_reported_once_if_the_thread_polls(
    name: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    watch = DiskWatch()

    def opens() -> None:
        for _ in range(3):
            watch.audited("open", ("positions.json", "r", 0))
            watch.audited("socket.connect", ())

    in_a_thread(name, opens)
    assert len(said(caplog)) == times
    assert all("'positions.json': " in line and "opens" in line for line in said(caplog))


def test_what_the_baselines_processing_does_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    watch = DiskWatch()

    class Task:
        write_due_ms = None

        def apply(self) -> None:
            watch.audited("open", ("a store", "r", 0))

    context: Any = SimpleNamespace(clock=StepClock())
    processing, task = InlineProcessing(context), Task()
    in_a_thread(STREAM, lambda: processing.apply(task))  # type: ignore[arg-type]  # as far as it goes
    assert said(caplog) == []
    in_a_thread(STREAM, task.apply)
    assert len(said(caplog)) == 1


def test_source_lines_that_python_reads_for_a_traceback_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    watch = DiskWatch()

    def tells() -> None:
        try:
            raise ValueError
        except ValueError:
            traceback.format_exc()

    def hears(event: str, arguments: tuple[object, ...]) -> None:
        if hearing:
            watch.audited(event, arguments)

    hearing = True
    sys.addaudithook(hears)
    with caplog.at_level(logging.WARNING, "compat_tests"):
        in_a_thread(STREAM, tells)
    hearing = False
    assert said(caplog) == []


PROGRAM = """
import logging, os, sys, threading
from pathlib import Path
from compat_tests.apps.disk import DiskWatch
from milestones.common.state.engines.memory_engine import MemoryEngine
from milestones.common.state.engines.rocksdict_engine import RocksDictEngine, RocksDictEngines

logging.basicConfig(stream=sys.stdout, format="%(message)s")
DiskWatch().install()
folder, engines = Path(sys.argv[1]), RocksDictEngines()
kept = engines.open(folder / "kept", {})
store, volatile = kept.open("counts"), MemoryEngine().open("counts")
uses = {
    "open": lambda: open(folder / "file", "w").close(),
    "os.stat": lambda: folder.exists(),
    "os.fsync": lambda: os.fsync(0),
    "os.rename": lambda: (folder / "file").rename(folder / "other"),
    "RocksDictEngine.__init__": lambda: engines.open(folder / "new", {}).close(),
    "RocksDictNamespace.offset": store.offset,
    "RocksDictNamespace.get": lambda: store.get(b"k"),
    "MemoryNamespace.scan": lambda: volatile.scan(None, None),
    "RocksDictEngine.apply": lambda: kept.apply({"counts": {b"k": b"v"}}, {"counts": 1}),
    "RocksDictEngine.close": kept.close,
}
for what, use in uses.items():
    print("use", what, flush=True)
    def tried():
        try: use()
        except OSError: pass
    thread = threading.Thread(target=tried, name="app-PollingThread")
    thread.start()
    thread.join()
"""


def test_each_way_of_using_a_file_or_a_store_is_seen(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stdout
    uses = output.split("use ")[1:]
    unseen = [use for use in uses if f"{USED}{use.partition(chr(10))[0]} " not in use]
    assert (len(uses), unseen) == (10, [])
