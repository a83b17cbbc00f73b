"""`milestones spark`: help and errors, without Spark; what a run prints."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from milestones.cli.main import invoke
from milestones.cli.spark import sessions
from tests.milestones.cli.conftest import plain

BASE = ("-a", "words", "-b", "b:1")


def test_commands_and_their_help_need_no_pyspark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from milestones.cli.main import invoke\n"
        "assert invoke(['spark', '--help']) == 0\n"
        "assert invoke(['spark', 'run', '--help']) == 0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "micro-batch" in done.stdout


def test_without_pyspark_it_says_what_to_install(
    words: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "milestones.pipeline", None)
    assert invoke(["spark", "run", str(words), *BASE]) == 2
    assert "pip install 'milestones[spark]'" in plain(capsys.readouterr().err)


def test_a_setting_of_sparks_is_checked(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["spark", "run", str(words), *BASE, "--spark", "executor.memory=2g"]) == 2
    assert "spark.KEY=VALUE" in capsys.readouterr().err


class FakeRun:
    """Two jobs, then the end."""

    def __init__(self) -> None:
        self.looks = 0
        self.stopped = False
        self.progress = SimpleNamespace(rounds=(), records=30, jobs=2, elsewhere=0, dropped=0)

    def wait(self, timeout_s: float) -> bool:
        self.looks += 1
        done = SimpleNamespace(
            number=self.looks, subtopologies=(0, 1), tasks=4, records=1500, seconds=0.5, records_per_second=3000.0,
            restored=0, error="executor lost" if self.looks == 2 else None,
        )  # fmt: skip
        self.progress.rounds = (*self.progress.rounds, done)
        return self.looks == 3

    def stop(self) -> None:
        self.stopped = True

    def __enter__(self) -> FakeRun:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeRun, dict[str, Any]]:
    """A run that isn't one, and what it was begun with."""
    made, given = FakeRun(), dict[str, Any]()

    @contextmanager
    def session(name: str, master: str, settings: dict[str, str]) -> Iterator[None]:
        given.update(name=name, master=master, settings=settings)
        yield None

    def run_on_spark(topology: object, spark: object, **more: Any) -> FakeRun:
        given.update(more)
        return made

    module = ModuleType("milestones.pipeline")
    module.run_on_spark = run_on_spark  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "milestones.pipeline", module)
    monkeypatch.setattr(sessions, "session", session)
    return made, given


@pytest.mark.parametrize(("dropped", "said"), [(0, "in 2 jobs\n"), (1_500, "in 2 jobs, 1,500 dropped (dropped-")])
def test_the_last_line_of_a_run_says_how_many_records_it_dropped(
    words: Path, run: tuple[FakeRun, dict[str, Any]], capsys: pytest.CaptureFixture[str], dropped: int, said: str
) -> None:
    made, _ = run
    made.progress.dropped = dropped
    assert invoke(["spark", "run", str(words), *BASE]) == 0
    assert said in capsys.readouterr().out


def test_a_run_gets_what_the_command_line_says_and_tells_of_each_job(
    words: Path, run: tuple[FakeRun, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--mode", "micro-batch", "--max-records", "7", "--master", "local[3]", "--spark", "spark.x=y"]
    assert invoke(["spark", "run", str(words), *BASE, *options]) == 0
    _, given = run
    assert (given["mode"], given["max_records"], given["interval_ms"]) == ("micro_batch", 7, 1_000)
    assert (given["name"], given["master"], given["settings"]) == ("words", "local[3]", {"spark.x": "y"})
    assert given["config"].application_id == "words"
    said = capsys.readouterr()
    assert "30 records in 2 jobs" in said.out
    told = plain(said.err)
    assert "job 1: sub-topology 0, 1, 4 tasks: 1,500 records in 0.5 s (3,000/s)" in told
    assert "job 2: sub-topology 0, 1, 4 tasks: planned again: executor lost" in told
