"""A small suite with the compatibility suite's own conftest, no broker: run by one process, and by two workers."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from compat_tests.conftest import _part as part_of
from compat_tests.harness.workers import LONGEST

ROOT = Path(__file__).resolve().parents[2]
BOTH = pytest.mark.parametrize("workers", [0, 2])

CONFTEST = """
import os
import signal

import pytest

from compat_tests.conftest import *

@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if "leader_interrupted" in report.nodeid and report.when == "setup" and "PYTEST_XDIST_WORKER" not in os.environ:
        with open("in-the-middle"):  # once the case is in it
            os.killpg(0, signal.SIGINT)
"""
HEAD = """
import os
import signal
import threading
from types import SimpleNamespace

import pytest


@pytest.fixture
def logged(request, stage, tmp_path):
    log = tmp_path / "one.log"
    log.write_text("what the instance said")
    instance = SimpleNamespace(name="one", log_file=log, log_tail=log.read_text)
    request.node.world = SimpleNamespace(instances=[instance])
"""
ORDINARY = """
def test_it_passes(stage, guarantee):
    pass

def test_it_fails(logged):
    assert False, "lost"

def test_it_cannot_run_here(stage):
    pytest.skip("root only")

def test_its_setup_fails(stage, missing):
    pass

def test_it_writes_a_file(stage, guarantee, request, report_file):
    option = request.config.option
    report_file(f"{guarantee}.txt").write_text(f"{option.seed} {option.broker}")
"""
ELSEWHERE = """
def test_something_else_fails():
    assert False
"""
DIES = """
def test_its_worker_dies(stage):
    os._exit(3)
"""
INTERRUPTED = {
    0: """
def test_the_run_is_interrupted(stage, report_file):
    try:
        os.killpg(0, signal.SIGINT)
        threading.Event().wait(60)
    finally:
        report_file("rescued.txt").write_text("what there was")
""",
    2: """
def test_the_run_is_leader_interrupted(stage, report_file):
    try:
        with open("in-the-middle", "w"):
            threading.Event().wait(60)
    finally:
        report_file("rescued.txt").write_text("what there was")
""",
}
LATER = """
@pytest.mark.parametrize("number", range(20))
def test_it_comes_later(stage, number):
    pass
"""


@dataclass
class Run:
    """What a run of the small suite has printed, and its report."""

    code: int
    text: str
    folder: Path

    @property
    def matrix(self) -> str:
        return (self.folder / "matrix.md").read_text("utf-8")

    def links(self) -> list[str]:
        return re.findall(r"\]\(([^)]*)\)", self.matrix)

    def ended(self) -> dict[str, list[str]]:
        """By worker: the files of the cases that it ended, in that order."""
        found: dict[str, list[str]] = {}
        for worker, file in re.findall(r"^\[(gw\d)\] .* (?:cases|planted)/test_(\w+)\.py::", self.text, re.MULTILINE):
            found.setdefault(worker, []).append(file)
        return found


def heed_interrupts() -> None:
    """What a shell starts in the background ignores them, and so does all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(directory: Path, workers: int, *arguments: str, **files: str) -> Run:
    """Run `files` (name: text) as cases."""
    suite, folder = directory / "suite", directory / "report"
    (suite / "cases").mkdir(parents=True)
    (suite / "planted").mkdir()
    (suite / "conftest.py").write_text(CONFTEST)
    (suite / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    os.mkfifo(suite / "in-the-middle")
    for name, text in files.items():
        (suite / ("planted" if name == "elsewhere" else "cases") / f"test_{name}.py").write_text(HEAD + text)
    command = [sys.executable, "-m", "pytest", ".", "-v", "-n", str(workers), "--broker", "process"]
    command += ["--report", str(folder), "--basetemp", str(directory / "work"), *arguments]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    environment = {**own, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    done = subprocess.run(
        command,
        cwd=suite,
        env=environment,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
        preexec_fn=heed_interrupts,
    )
    return Run(done.returncode, done.stdout + done.stderr, folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """By workers: the ordinary small suite, one without a seed of its own."""
    long = "def test_it_is_long(stage):\n    pass\n"
    return {
        workers: run(tmp_path_factory.mktemp("run"), workers, ordinary=ORDINARY, stalls=long, elsewhere=ELSEWHERE)
        for workers in (0, 2)
    }


MORE = """
@pytest.mark.parametrize("number", range(3))
def test_short(number):
    pass
""" + "".join(f"""
@pytest.mark.full
@pytest.mark.parametrize("number", range(3))
def test_long_{name}(number):
    pass
""" for name in "abcdef")


def test_the_parts_of_a_selection_have_each_longer_case_once_and_all_of_the_short_one(tmp_path: Path) -> None:
    def part(which: str, workers: int) -> set[str]:
        done = run(tmp_path / f"{which[0]} {workers}", workers, "--selection", "full", "--part", which, more=MORE)
        return {"".join(case) for case in re.findall(r"test_(short|long_\w)\[(\d)\]", done.text)}

    first, second = part("1/2", 0), part("2/2", 0)
    short = {f"short{number}" for number in range(3)}
    assert first & second == short
    assert first | second == short | {f"long_{name}{number}" for name in "abcdef" for number in range(3)}
    assert first - short
    assert second - short
    assert part("1/2", 2) == first


def test_a_part_that_there_is_not_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, 0, "--part", "3/2", more=MORE)
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "3/2: K/N, with K from 1 to N" in done.text
    for part in ("0/2", "1", "half"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"^{part}: K/N, with K from 1 to N$"):
            part_of(part)


STAGED = ("--selection", "full", "--stages", "baseline,m2,m6", "-rs", "--until")


@BOTH
def test_when_its_time_is_up_a_run_leaves_out_all_but_the_last_stages_short_selection_and_says_so(
    workers: int, tmp_path: Path
) -> None:
    staged = MORE + "def test_staged(stage):\n    pass\n"
    late = run(tmp_path, workers, *STAGED, "0", more=staged)
    assert re.findall(r"(\d+) passed, (\d+) skipped", late.text) == [("4", "20")]
    assert "left out, as this run has taken long enough (--until)" in late.text


def test_a_run_that_has_an_end_begins_with_the_last_stage_and_leaves_out_nothing_before(tmp_path: Path) -> None:
    staged = MORE + "def test_staged(stage):\n    pass\n"
    early = run(tmp_path, 0, *STAGED, "1e12", more=staged)
    assert re.findall(r"test_staged\[(\w+)\]", early.text) == ["m6", "baseline", "m2"]
    assert "24 passed" in early.text
    assert "skipped" not in early.text


def test_a_failure_is_told_when_it_comes(tmp_path: Path) -> None:
    done = run(tmp_path, 0, ordinary=ORDINARY)
    begins = done.text.index("failed: ")
    assert begins < done.text.index("= FAILURES =")
    assert "AssertionError: lost" in done.text[begins:].splitlines()[0]


def shape(text: str) -> str:
    """A matrix without the moment of its run, durations and temporary folders."""
    lines = text.splitlines()
    return re.sub(r"\d+(\.\d)? s\b|/\S+/suite", "...", "\n".join([*lines[:2], *lines[3:]]))


def test_workers_and_one_process_write_the_same_matrix(runs: dict[int, Run]) -> None:
    assert shape(runs[2].matrix) == shape(runs[0].matrix)
    assert "**5 passed, 2 failed, 1 skipped**" in runs[2].matrix
    assert runs[2].matrix.splitlines()[2].endswith(", 2 workers")
    assert "workers" not in runs[0].matrix


@BOTH
def test_a_failure_has_its_logs_and_the_command_that_repeats_it(runs: dict[int, Run], workers: int) -> None:
    made = runs[workers]
    kept = next(made.folder.glob("*test_it_fails*"))
    failure = (kept / "failure.txt").read_text()
    assert (kept / "one.log").read_text() == "what the instance said"
    command = r"pytest 'cases/test_ordinary\.py::test_it_fails\S+ --seed \d+ --broker process"
    assert re.search(command, failure)
    assert re.search(command, made.text)
    assert "instance one" in made.text
    assert "assert False" in failure
    assert all((made.folder / link).exists() for link in made.links())


@BOTH
def test_all_cases_have_the_seed_and_the_broker_of_the_header(runs: dict[int, Run], workers: int) -> None:
    found = re.search(r"broker (\w+), seed (\d+)$", runs[workers].text, re.MULTILINE)
    assert found is not None
    files = sorted(runs[workers].folder.glob("*.txt"))
    assert [file.name for file in files] == ["at_least_once.txt", "exactly_once_v2.txt"]
    assert {file.read_text() for file in files} == {f"{found[2]} {found[1]}"}
    assert {file.name for file in files} < set(runs[workers].links())


def test_the_header_says_how_many_brokers_there_are(runs: dict[int, Run]) -> None:
    assert "parallel workers: 2, each with a broker of its own" in runs[2].text
    assert "parallel workers" not in runs[0].text


def test_workers_begin_with_the_longest_files(runs: dict[int, Run]) -> None:
    assert "stalls" in {files[0] for files in runs[2].ended().values()}
    assert runs[0].text.index("test_ordinary.py::") < runs[0].text.index("test_stalls.py::")


def test_files_named_as_the_longest_exist() -> None:
    assert set(LONGEST) <= {path.stem for path in (ROOT / "compat_tests").rglob("test_*.py")}


def test_a_case_whose_worker_died_has_failed_and_the_others_go_on(tmp_path: Path) -> None:
    made = run(tmp_path, 2, "--seed", "7", dies=DIES, later="def test_it_passes(stage, guarantee):\n    pass\n")
    assert made.code == 1
    assert "**2 passed, 1 failed**" in made.matrix
    failure = next(made.folder.glob("*/failure.txt")).read_text()
    assert "crashed while running" in failure
    assert "--seed 7" in failure


@BOTH
def test_an_interrupted_run_has_its_matrix_and_what_its_cases_have_written(tmp_path: Path, workers: int) -> None:
    made = run(tmp_path, workers, interrupted=INTERRUPTED[workers] + LATER)
    assert made.code == 2
    assert re.search(r"^\| the run is \S*\s?interrupted \| … \|$", made.matrix, re.MULTILINE)
    assert "not run; this run was ended early**" in made.matrix
    assert (made.folder / "rescued.txt").read_text() == "what there was"
