"""The matrix: cases by stage and guarantee, with times, the seed and links to the logs of failures.

*Guarantees*: written in one go at the end of a run, an interrupted one too, before workers and brokers are taken down,
and again when they are; a case that wasn't run to its end is never shown as passed; logs of failures lie beside the
matrix, so that the folder can be kept, and are there once one is told. Nothing but reports, ids and files is used:
it makes no difference whether this process ran a case or a worker did.
*Assumes*: a case's id is `path::test[parameters]`, stage and guarantee among the parameters.
"""

from __future__ import annotations

import re
import shlex
import shutil
import time
import zlib
from argparse import Namespace
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compat_tests import GUARANTEES
from compat_tests.harness import matrix
from milestones.flags import legal_sets, stage_name

STAGE_NAMES = tuple(map(stage_name, legal_sets()))
IN_MATRIX = ("cases", "random_topologies", "soak", "spark")
"""Folders whose cases are in the matrix; the planted faults aren't."""
LONGEST = 150
"""Characters of the name of a failure's folder, before it is cut."""


@dataclass
class Case:
    """One run of one case: its outcome over set-up, call and tear-down. `text`: errors, or why it was skipped."""

    id: str
    command: str
    outcome: str = matrix.UNFINISHED
    seconds: float = 0.0
    text: str = ""
    error: str = ""
    logs: list[Path] = field(default_factory=list)

    @property
    def _parts(self) -> tuple[str, str, list[str]]:
        """File, test and parameters."""
        path, _, name = self.id.partition("::")
        test, _, rest = name.partition("[")
        return Path(path).stem.removeprefix("test_"), test, [part for part in rest.removesuffix("]").split("-") if part]

    @property
    def file(self) -> str:
        return self._parts[0].replace("_", " ")

    @property
    def promise(self) -> str:
        """The test's name as words, and those parameters that are neither stage nor guarantee."""
        _, test, parameters = self._parts
        for known in (self.column.stage, self.column.guarantee):
            if known:
                parameters.remove(known)
        words = test.rpartition("::")[2].removeprefix("test_").replace("_", " ")
        return f"{words} ({'-'.join(parameters)})" if parameters else words

    @property
    def column(self) -> matrix.Column:
        _, _, parameters = self._parts
        stage, guarantee = (
            next((one for one in parameters if one in names), "") for names in (STAGE_NAMES, GUARANTEES)
        )
        return matrix.Column(stage, guarantee)

    @property
    def folder(self) -> str:
        """Where its failure is kept: a name that every file system takes, and no other case has."""
        path, _, name = self.id.partition("::")
        readable = re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{Path(path).stem}-{name}").strip("_")
        return readable if len(readable) <= LONGEST else f"{readable[:LONGEST]}-{zlib.crc32(self.id.encode()):08x}"

    def add(self, result: pytest.TestReport) -> None:
        """Note one phase. Only a call that was seen to pass makes the case pass."""
        self.seconds += result.duration
        if result.failed:
            self.outcome = matrix.FAILED
            self.text += f"{result.when}\n{_error(result)}\n"
            self.error = self.error or _first_line(result)
        elif self.outcome == matrix.UNFINISHED and result.skipped:
            self.outcome = matrix.SKIPPED
            self.error = result.longrepr[2] if isinstance(result.longrepr, tuple | list) else result.longreprtext
        elif self.outcome == matrix.UNFINISHED and result.when == "call":
            self.outcome = matrix.PASSED

    def keep(self, folder: Path) -> None:
        """The text and the logs of its failure so far."""
        self.logs = [log for log in self.logs if log.exists()]
        kept = folder / self.folder
        kept.mkdir(parents=True, exist_ok=True)
        (kept / "failure.txt").write_text(f"repeat it with\n    {self.command}\n\n{self.text}", "utf-8")
        for log in self.logs:
            shutil.copy(log, kept)

    def shown(self) -> matrix.Cell:
        failed = self.outcome == matrix.FAILED
        kept = ("failure.txt", *(log.name for log in self.logs)) if failed else ()
        links = tuple(f"{self.folder}/{name}" for name in kept)
        return matrix.Cell(self.file, self.promise, self.column, self.outcome, self.seconds, self.error, links)


@dataclass
class Results:
    """All cases of a run. `workers`: 0: there were none; `files`: what cases wrote for whoever reads the report."""

    seed: int
    broker: str
    workers: int = 0
    cases: dict[str, Case] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    started: float = field(default_factory=time.time)
    written: Path | None = None

    def add(self, id: str, result: pytest.TestReport, command: str, logs: list[Path]) -> None:
        """Note one phase of a case."""
        case = self.cases.setdefault(id, Case(id, command))
        case.add(result)
        if result.failed:
            case.logs = logs

    def write(self, folder: Path, planned: Iterable[str] = ()) -> None:
        """`matrix.md`, `matrix.html`, a folder per failure, and the files that cases have written. `planned`: the ids
        of all cases that were to run; those that didn't are shown as such."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for case in self.cases.values():
            if case.outcome == matrix.FAILED:
                case.keep(folder)
        files = [file for file in self.files if file.exists()]
        for file in files:
            shutil.copy(file, folder)
        run = {id: self.cases.get(id) or Case(id, "", matrix.NOT_RUN) for id in [*planned, *self.cases]}
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.started))
        head = f"{when}, seed {self.seed}, broker {self.broker}, {matrix.duration(time.time() - self.started)}"
        head += f", {self.workers} workers" if self.workers > 1 else ""
        names = [file.name for file in files]
        cells = [case.shown() for case in sorted(run.values(), key=lambda case: case.file)]
        shown = matrix.Matrix(head, cells, STAGE_NAMES, names)
        (folder / "matrix.md").write_text(matrix.markdown(shown), "utf-8")
        (folder / "matrix.html").write_text(matrix.page(shown), "utf-8")
        self.written = folder / "matrix.html"


def in_the_matrix(id: str) -> bool:
    """Whether the case of this id is one of a stage, in one of the folders."""
    return Path(id.partition("::")[0]).parent.name in IN_MATRIX and Case(id, "").column.stage != ""


def _first_line(result: pytest.TestReport) -> str:
    """What went wrong, in one line."""
    crash = getattr(result.longrepr, "reprcrash", None)
    lines = (crash.message if crash is not None else _error(result)).strip().splitlines()
    return lines[0] if lines else ""


def _error(result: pytest.TestReport) -> str:
    """All of what went wrong. `longreprtext` would name the worker first."""
    return str(result.longrepr)


LOGS = "instances' logs"
"""The property of a failure's report that has the paths of its instances' logs."""


class Recorder:
    """The pytest plugin that fills the matrix and writes it, in the process that leads. `folder`: of the matrix;
    `staged`: what cases want to have in it."""

    def __init__(self, results: Results, option: Namespace, folder: Path, staged: Path) -> None:
        self._results, self._option, self._folder, self._staged = results, option, folder, staged
        self._planned: list[str] = []
        self._terminal: pytest.TerminalReporter | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._terminal = session.config.pluginmanager.get_plugin("terminalreporter")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._plan([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        self._plan(ids)

    def _plan(self, ids: Sequence[str]) -> None:
        """All workers have the same."""
        self._planned = [id for id in ids if in_the_matrix(id)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A worker that died has a report too, without properties."""
        if in_the_matrix(report.nodeid):
            logs = [Path(log) for name, logs in report.user_properties if name == LOGS for log in logs]  # type: ignore[attr-defined]
            self._results.add(report.nodeid, report, command(self._option, report.nodeid), logs)
            if report.failed:
                self._results.cases[report.nodeid].keep(self._folder)
                self._tell(report)

    def _tell(self, report: pytest.TestReport) -> None:
        """Write a line of it now: a run that is cut off has no summary."""
        if self._terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = report.longreprtext if crash is None else crash.message
            self._terminal.write_line(f"\nfailed: {report.nodeid}: {' '.join(message.split())[:300]}")

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Generator[None]:
        self._write()
        yield
        if self._results.workers:
            self._write()

    def _write(self) -> None:
        if self._results.cases:
            self._results.files = sorted(self._staged.iterdir())
            self._results.write(self._folder, self._planned)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._results.written is not None:
            terminalreporter.write_line(f"matrix of cases by stage: {self._results.written}")


def command(option: Namespace, id: str) -> str:
    """What repeats a case."""
    parts = ["pytest", id, "--seed", str(option.seed), "--broker", option.broker, "--selection", option.selection]
    for name in ("stages", "older", "guarantee"):
        parts += [f"--{name}", getattr(option, name)] if getattr(option, name) else []
    parts += ["--fresh"] if option.fresh else []
    return shlex.join(parts)
