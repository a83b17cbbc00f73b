"""The matrix: cases by stage and guarantee, with times, the seed and links to the logs of failures.

*Guarantees*: written in one go at the end of a run; logs of failures lie beside it, so that the folder can be kept.
*Assumes*: a case's id is `path::test[stage-guarantee-...]`.
"""

from __future__ import annotations

import html
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_COLUMN = re.compile(r"\b(?:baseline|m\d|at_least_once|exactly_once_v2)\b")
MARKS = {"passed": "✓", "failed": "✗", "skipped": "–"}


@dataclass
class Case:
    """One run of one case: its outcome over set-up, call and tear-down."""

    id: str
    command: str
    outcome: str = "passed"
    seconds: float = 0.0
    text: str = ""
    logs: list[Path] = field(default_factory=list)

    @property
    def row(self) -> str:
        """The case's promise: file and test name as words, and the parameters that aren't stage or guarantee."""
        path, _, name = self.id.partition("::")
        test, _, rest = name.partition("[")
        words = test.removeprefix("test_").replace("_", " ")
        others = _COLUMN.sub("", rest.removesuffix("]")).strip("-")
        return f"{Path(path).stem.removeprefix('test_')}: {words}" + (f" ({others})" if others else "")

    @property
    def column(self) -> str:
        return " ".join(_COLUMN.findall(self.id.partition("[")[2])) or "any"


@dataclass
class Results:
    """All cases of a run."""

    seed: int
    broker: str
    cases: dict[str, Case] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    written: Path | None = None

    def add(self, id: str, result: pytest.TestReport, command: str, logs: list[Path]) -> None:
        """Note one phase of a case."""
        case = self.cases.setdefault(id, Case(id, command))
        case.seconds += result.duration
        if result.outcome != "passed" and case.outcome != "failed":
            case.outcome = result.outcome
        if result.failed:
            case.text += f"{result.when}\n{result.longreprtext}\n"
            case.logs = logs

    def write(self, folder: Path) -> None:
        """`matrix.md`, `matrix.html`, and a folder per failure."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for case in self.cases.values():
            if case.outcome == "failed":
                _keep(case, folder / _folder(case))
        head = self._head()
        table = [["case", *self._columns()], *self._rows()]
        (folder / "matrix.md").write_text(_markdown(head, table), "utf-8")
        (folder / "matrix.html").write_text(_html(head, table), "utf-8")
        self.written = folder / "matrix.html"

    def _head(self) -> str:
        counts = {name: sum(case.outcome == name for case in self.cases.values()) for name in MARKS}
        shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.started))
        return f"{when}, seed {self.seed}, broker {self.broker}, {time.time() - self.started:.0f} s: {shown}"

    def _columns(self) -> list[str]:
        return sorted({case.column for case in self.cases.values()})

    def _rows(self) -> Iterable[list[str]]:
        by_cell = {(case.row, case.column): case for case in self.cases.values()}
        for row in dict.fromkeys(case.row for case in self.cases.values()):
            yield [row, *(_cell(by_cell.get((row, column))) for column in self._columns())]


def _folder(case: Case) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", case.id.rpartition("::")[2]).strip("_")


def _keep(case: Case, folder: Path) -> None:
    folder.mkdir()
    (folder / "failure.txt").write_text(f"repeat it with\n    {case.command}\n\n{case.text}", "utf-8")
    for log in case.logs:
        if log.exists():
            shutil.copy(log, folder)


def _cell(case: Case | None) -> str:
    if case is None:
        return ""
    shown = f"{MARKS[case.outcome]} {case.seconds:.1f} s"
    return f"[{shown}]({_folder(case)}/failure.txt)" if case.outcome == "failed" else shown


def _markdown(head: str, table: Sequence[Sequence[str]]) -> str:
    lines = ["# Cases by stage", "", head, "", _line(table[0]), _line(["---"] * len(table[0]))]
    return "\n".join([*lines, *map(_line, table[1:])]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


_PAGE = """<!doctype html><meta charset="utf-8"><title>Cases by stage</title>
<style>body{{font:15px system-ui;margin:2em}}td,th{{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:left}}
td:not(:first-child){{white-space:nowrap}}a{{color:#b00}}</style>
<h1>Cases by stage</h1><p>{head}</p><table>{rows}</table>
"""


def _html(head: str, table: Sequence[Sequence[str]]) -> str:
    rows = [_html_row("th", table[0]), *(_html_row("td", row) for row in table[1:])]
    return _PAGE.format(head=html.escape(head), rows="\n".join(rows))


def _html_row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_link(html.escape(cell))}</{tag}>" for cell in cells) + "</tr>"


def _link(cell: str) -> str:
    return re.sub(r"^\[(.*)\]\((.*)\)$", r'<a href="\2">\1</a>', cell)
