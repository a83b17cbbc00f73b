"""The benchmark `stores`: what it makes of looks at a process, and of its log."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.process import Measured
from benchmarks.stores import app
from benchmarks.stores.looks import Look, begun, changes, databases, opening_s, seen, typical
from benchmarks.stores.work import Stores
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines

PATIENCE_S = 30.0
JOB = Job("b:1", "stores-1", "at_least_once", "in", "out", "state", work="3")


def test_each_record_is_written_into_all_stores_of_its_task() -> None:
    (part,) = app.topology(JOB).resolve("stores-1")
    assert {spec.name for spec in part.stores} == {"store-0", "store-1", "store-2"}


def test_each_task_has_equally_many_records() -> None:
    work = Stores(None, Path(), stores=3, records=1_000, seed=1)  # type: ignore[arg-type]
    rows = Counter(partition for _, partition, *_ in work.rows("in", 8, 1_000))
    assert rows == dict.fromkeys(range(8), 125)
    assert work.asked == {"work": "3"}
    assert work.title == "1,000 records into each of 3 stores, and as many again"


def test_the_log_says_when_tasks_begin_and_how_long_databases_took_to_open(capsys: pytest.CaptureFixture[str]) -> None:
    app.say(app.PROCESSES, 2_500)
    app.say(app.OPENED, 12.5)
    app.say(app.PROCESSES, 1_500)
    app.say(app.OPENED, 7.5)
    told = capsys.readouterr().out
    assert (begun(told), opening_s(told)) == ([1.5, 2.5], pytest.approx(0.02))


def test_a_database_counts_when_it_is_opened_closed_or_opened_anew(tmp_path: Path) -> None:
    engines, mine = RocksDictEngines(), os.getpid()
    stays, goes, again = (engines.open(tmp_path / name) for name in ("stays", "goes", "again"))
    before = databases(mine)
    goes.close()
    again.close()
    again = engines.open(tmp_path / "again")
    after = databases(mine)
    assert {Path(path).parent.name for path in before} >= {"stays", "goes", "again"}
    assert changes(before, after) == 3
    assert changes(after, after) == 0
    stays.close()
    again.close()


def test_what_is_typical_is_the_median_of_the_looks() -> None:
    looks = [Look(10, 3, 50.0, 1.0), Look(14, 4, 70.0, 2.0), Look(12, 5, 60.0, 9.0)]
    assert typical(looks) == {"handles": 12, "threads": 4, "rss_mb": 60.0}


def test_what_a_process_wrote_is_known_at_its_end_and_one_that_ends_while_it_is_looked_at_is_an_error_with_its_log(
    tmp_path: Path,
) -> None:
    writes = (
        "import os, time, pathlib; f = open('written', 'wb'); f.write(bytes(8 << 20)); f.flush(); os.fsync(f); "
        "print('wrote', flush=True); time.sleep(60)"
    )
    log = tmp_path / "log"
    command = [sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {writes}"]
    with Measured(command, log) as process:
        process.wait(lambda: "wrote" in log.read_text(), PATIENCE_S)
        assert process.look(seen).handles > 0
        assert process.stop().written_mb >= 0

    def gone(_: Any) -> Look:
        raise psutil.NoSuchProcess(1)

    with (
        Measured([sys.executable, "-c", "print('ends by itself')"], log) as process,
        pytest.raises(BenchmarkError, match="ends by itself"),
    ):
        process.look(gone)


@pytest.mark.parametrize("profiler", [False, True])
def test_who_is_asked_to_end_is_the_contender_not_a_process_that_it_has_begun(tmp_path: Path, profiler: bool) -> None:
    """A profiler runs the contender as its child."""
    waits, log = "import signal; print('waits', flush=True); signal.pause()", tmp_path / "log"
    begins = (
        f"import signal, subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {waits!r}]); "
        f"signal.signal(signal.SIGTERM, lambda *_: sys.exit({42 if profiler else 0})); "
        "child.wait(); sys.exit(0 if child.returncode else 43)"
    )
    command = [sys.executable, "-c", begins]
    if profiler:
        (tmp_path / "py-spy").symlink_to(sys.executable)
        command[0] = str(tmp_path / "py-spy")
    with Measured(command, log) as process:
        process.wait(lambda: "waits" in log.read_text(), PATIENCE_S)
        (child,) = process.look(lambda watched: watched.children())
        process.stop()
        assert child.is_running() is not profiler
        if not profiler:
            child.kill()
