"""The pytest plugin that fills the matrix from reports, and writes it.

*Guarantees*: nothing but reports, ids and files is used, so it makes no difference whether this process ran a case or a
worker did. An interrupted run has its matrix before workers and brokers are taken down, and again when they are.
*Assumes*: registered in the process that leads, not in its workers.
"""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from compat_tests.harness.report import Results, in_the_matrix

LOGS = "instances' logs"
"""The property of a failure's report that has the paths of its instances' logs."""


class Recorder:
    """`folder`: of the matrix; `staged`: what cases want to have in it."""

    def __init__(self, results: Results, option: Namespace, folder: Path, staged: Path) -> None:
        self._results, self._option, self._folder, self._staged = results, option, folder, staged
        self._planned: list[str] = []

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
    return shlex.join(parts)
