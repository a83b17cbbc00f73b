"""A disk that takes long to sync stops no other thread of the process for longer than is said here.

What stops them is a sync of a thread that holds Python's global lock, or a call that holds it and waits for a sync of
the library's own threads. A call that is as fast on such a disk as on another one stops nobody.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from milestones.common.state.engine import Engine, Namespace
from tests.common.state.conftest import engines_named

HERE = Path(__file__).parent
SYNC_MS = 100

STOPS: dict[str, tuple[int, int]] = {
    "Engines.open, a new one": (5, 0),
    "Engines.open, again": (5, 0),
    "Engines.open, after a kill": (7, 0),
    "open, of a new engine": (0, 0),
    "open, another one": (3, 0),
    "SstWriter.write": (1, 1),
    "ingest": (4, 9),
    "compact": (0, 6),
    "drop": (3, 0),
    **dict.fromkeys(("apply", "expire", "wipe", "sync", "flush", "interrupt", "close"), (0, 0)),
    **dict.fromkeys(("get", "scan", "scan_bounded", "reader", "offset", "approximate_entries"), (0, 0)),
    **dict.fromkeys(("namespaces", "unflushed", "statistics", "memory", "scanned"), (0, 0)),
}
"""By call, the syncs that other threads wait for: of rocksdict, and of the second engine, which reads table files by
rocksdict."""
SLACK_MS = 300


@cache
def slow(folder: Path) -> Path:
    """The library before which each sync is a slow one."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or sys.platform != "linux":
        pytest.skip("a slow disk is made by a library that is loaded before all others: Linux, and a C compiler")
    folder.mkdir(exist_ok=True)
    library = folder / "syncs.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HERE / "syncs.c", "-ldl"], check=True)
    return library


@cache
def found(engine: str, folder: Path) -> dict[str, tuple[int, int]]:
    library, work = slow(folder), folder / engine
    work.mkdir()
    given = {"LD_PRELOAD": str(library), "SYNCS": str(work / "syncs"), "SYNC_TAKES_US": str(SYNC_MS * 1_000)}
    command = [sys.executable, HERE / "engine_calls.py", engine, work]
    told = subprocess.run(command, env={**os.environ, **given}, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {call: (held, stop_ms) for call, (held, stop_ms) in json.loads(told).items()}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slow-disk")


@pytest.mark.parametrize(("number", "engine"), [(0, "rocksdict"), (1, "rocksdb")])
@pytest.mark.parametrize("call", STOPS)
def test_no_call_stops_other_threads_for_more_syncs_than_it_has_to(
    number: int, engine: str, call: str, folder: Path
) -> None:
    engines_named(engine)
    syncs = STOPS[call][number]
    held, stop_ms = found(engine, folder)[call]
    if stop_ms > syncs * SYNC_MS + SLACK_MS:  # the machine may have had other work
        held, stop_ms = found(engine, folder / "again")[call]
    assert held <= syncs
    assert stop_ms <= syncs * SYNC_MS + SLACK_MS
    assert stop_ms >= SYNC_MS * bool(held), "a sync under the lock that stopped nobody: stops aren't measured"


def test_no_call_of_an_engine_is_left_out() -> None:
    calls = {name for seam in (Engine, Namespace) for name in vars(seam) if not name.startswith("_")} - {"name"}
    assert calls <= {call.partition(",")[0] for call in STOPS}
