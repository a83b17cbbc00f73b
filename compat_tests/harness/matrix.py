"""The matrix of cases by stage and guarantee, as Markdown and as a page.

*Guarantees*: pure; whatever stands in names and errors is shown as it is. Files and columns are sorted, the cases of a
file stay in their order.
*Assumes*: nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

PASSED, FAILED, SKIPPED, UNFINISHED, NOT_RUN = "passed", "failed", "skipped", "interrupted", "not run"
MARKS = {PASSED: "✓", FAILED: "✗", SKIPPED: "–", UNFINISHED: "…", NOT_RUN: "·"}
LEGEND = {
    PASSED: "every check held",
    FAILED: "the link has the errors, the command that repeats it, and the instances' logs",
    SKIPPED: "can't run here",
    UNFINISHED: "the run ended in the middle of it",
    NOT_RUN: "the run ended before it",
}
TITLE = "Cases by stage and guarantee"


class Column(NamedTuple):
    """What a case runs under; empty where it doesn't matter."""

    stage: str
    guarantee: str

    @property
    def lines(self) -> tuple[str, str]:
        return self.stage or "any stage", self.guarantee or "either guarantee"


class Cell(NamedTuple):
    """One case in one column. `links`: relative to the matrix, the failure itself first."""

    file: str
    promise: str
    column: Column
    outcome: str
    seconds: float
    error: str = ""
    links: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return MARKS[self.outcome] + (f" {duration(self.seconds)}" if self.outcome in (PASSED, FAILED) else "")


@dataclass(frozen=True)
class Matrix:
    """All cells of a run. `stages`: in their order. `files`: names of what cases have written beside the matrix."""

    head: str
    cells: Sequence[Cell]
    stages: Sequence[str]
    files: Sequence[str] = ()

    @property
    def columns(self) -> list[Column]:
        order = {name: number for number, name in enumerate(self.stages)}
        found = {cell.column for cell in self.cells}
        return sorted(found, key=lambda one: (order.get(one.stage, len(order)), one.guarantee or "~"))

    @property
    def summary(self) -> str:
        text = ", ".join(f"{count} {name}" for name in MARKS if (count := self._count(name))) or "no cases"
        stopped = self._count(UNFINISHED) + self._count(NOT_RUN)
        return f"{text}; this run was ended early" if stopped else text

    def _count(self, outcome: str) -> int:
        return sum(cell.outcome == outcome for cell in self.cells)

    def of(self, *outcomes: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.outcome in outcomes]

    def totals(self) -> list[list[str]]:
        """A row per column: its counts by outcome, and its time."""
        shown = [name for name in MARKS if self._count(name)]
        rows = [["stage", "guarantee", *shown, "time"]]
        for column in self.columns:
            own = [cell for cell in self.cells if cell.column == column]
            counts = [str(sum(cell.outcome == name for cell in own)) for name in shown]
            rows.append([*column.lines, *counts, duration(sum(cell.seconds for cell in own))])
        if len(rows) > 2:
            counts = [str(self._count(name)) for name in shown]
            rows.append(["all", "", *counts, duration(sum(cell.seconds for cell in self.cells))])
        return rows

    def rows(self) -> Iterable[tuple[str, list[tuple[str, list[Cell | None]]]]]:
        """By file, sorted: each case with its cells, one per column."""
        at = {(cell.file, cell.promise, cell.column): cell for cell in self.cells}
        for file in sorted({cell.file for cell in self.cells}):
            promises = dict.fromkeys(cell.promise for cell in self.cells if cell.file == file)
            yield file, [(one, [at.get((file, one, column)) for column in self.columns]) for one in promises]


def duration(seconds: float) -> str:
    """Seconds below two minutes, with a tenth below ten; else minutes and seconds."""
    if seconds >= 120:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


# ---- Markdown


def markdown(matrix: Matrix) -> str:
    """The matrix as GitHub's Markdown."""
    lines = [f"# {TITLE}", "", matrix.head, "", f"**{matrix.summary}**", "", *_table(matrix.totals())]
    for title, cells in (("Failures", matrix.of(FAILED)), ("Skipped", matrix.of(SKIPPED))):
        if cells:
            lines += ["", f"## {title}", "", *map(_item, cells)]
    if matrix.files:
        lines += ["", "Files: " + ", ".join(f"[{_plain(name)}]({name})" for name in matrix.files)]
    for file, rows in matrix.rows():
        head = ["case", *(", ".join(column.lines) for column in matrix.columns)]
        body = [[_plain(promise), *map(_cell, cells)] for promise, cells in rows]
        lines += ["", f"## {_plain(file)}", "", *_table([head, *body])]
    legend = [f"{MARKS[name]} {name}: {text}" for name, text in LEGEND.items() if matrix.of(name)]
    return "\n".join([*lines, "", *(f"- {line}" for line in legend)]) + "\n"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], f"| {' | '.join(['---'] * len(rows[0]))} |", *lines[1:]]


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return f"[{cell.text}]({cell.links[0]})" if cell.links else cell.text


def _item(cell: Cell) -> str:
    logs = ", ".join(f"[{link.rpartition('/')[2]}]({link})" for link in cell.links)
    where = ", ".join(part for part in cell.column if part)
    text = f"- {_plain(cell.file)}: {_plain(cell.promise)}" + (f" ({where})" if where else "")
    return text + (f": {_plain(cell.error)}" if cell.error else "") + (f" — {logs}" if logs else "")


def _plain(text: str) -> str:
    """Text that Markdown leaves alone, in a table too."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#" else sign for sign in text)


# ---- the page

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root{{color-scheme:light dark}}
body{{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em}}
table{{border-collapse:collapse;margin:1em 0}}
th,td{{padding:.3em .9em;border-bottom:1px solid #8884;text-align:left;vertical-align:top}}
thead th{{position:sticky;top:0;background:Canvas;border-bottom:2px solid #888}}
tbody th{{padding-top:1.4em;font-size:1.1em}}
thead small{{font-weight:normal}}
.outcome,.number{{white-space:nowrap}}
.number{{text-align:right}}
tbody tr:hover td{{background:#8881}}
.passed{{color:#18794e}}.failed,.failed a{{color:#d13438;font-weight:bold}}
.interrupted{{color:#b35900}}.skipped,.not-run{{color:#888}}
.total td{{border-top:2px solid #888;font-weight:bold}}
code{{overflow-wrap:anywhere}}
</style>
<h1>{title}</h1>
<p>{head}</p>
<p><strong>{summary}</strong></p>
{body}
</html>
"""


def page(matrix: Matrix) -> str:
    """The matrix as one HTML file."""
    parts = [_totals(matrix), _list("Failures", matrix.of(FAILED)), _list("Skipped", matrix.of(SKIPPED))]
    parts += ["Files: " + _links(matrix.files) if matrix.files else "", _legend(matrix), _cases(matrix)]
    head, summary = html.escape(matrix.head), html.escape(matrix.summary)
    return _PAGE.format(title=TITLE, head=head, summary=summary, body="\n".join(filter(None, parts)))


def _totals(matrix: Matrix) -> str:
    head, *rows = matrix.totals()
    lines = [f"<table><thead><tr>{_numbers('th', head)}</tr></thead><tbody>"]
    lines += [f"<tr{' class=total' if row[0] == 'all' else ''}>{_numbers('td', row)}</tr>" for row in rows]
    return "\n".join([*lines, "</tbody></table>"])


def _numbers(tag: str, row: Sequence[str]) -> str:
    """Cells, all but the first two for numbers."""
    return "".join(f"<{tag}{' class=number' if at > 1 else ''}>{html.escape(it)}</{tag}>" for at, it in enumerate(row))


def _list(title: str, cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    items = []
    for cell in cells:
        where = ", ".join(part for part in cell.column if part)
        text = html.escape(f"{cell.file}: {cell.promise}" + (f" ({where})" if where else ""))
        links = _links(cell.links)
        error = f"<br><code>{html.escape(cell.error)}</code>" if cell.error else ""
        items.append(f"<li>{text}{error}" + (f"<br>{links}" if links else "") + "</li>")
    return f"<h2>{title}</h2>\n<ul>\n" + "\n".join(items) + "\n</ul>"


def _links(paths: Iterable[str]) -> str:
    escaped = map(html.escape, paths)
    return ", ".join(f'<a href="{path}">{path.rpartition("/")[2]}</a>' for path in escaped)


def _legend(matrix: Matrix) -> str:
    shown = [(name, text) for name, text in LEGEND.items() if matrix.of(name)]
    lines = [f"<span class={_class(name)}>{MARKS[name]} {name}</span>: {html.escape(text)}" for name, text in shown]
    return "<p>" + "<br>\n".join(lines) + "</p>"


def _cases(matrix: Matrix) -> str:
    width = len(matrix.columns) + 1
    head = "".join(f"<th>{one}<br><small>{other}</small></th>" for one, other in (c.lines for c in matrix.columns))
    lines = [f"<table><thead><tr><th>case</th>{head}</tr></thead>"]
    for file, rows in matrix.rows():
        lines.append(f'<tbody><tr><th colspan="{width}">{html.escape(file)}</th></tr>')
        lines += [f"<tr><td>{html.escape(one)}</td>{''.join(map(_html_cell, cells))}</tr>" for one, cells in rows]
        lines.append("</tbody>")
    return "\n".join([*lines, "</table>"])


def _html_cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    text = f'<a href="{html.escape(cell.links[0])}">{cell.text}</a>' if cell.links else cell.text
    title = f' title="{html.escape(cell.error)}"' if cell.error else ""
    return f'<td class="outcome {_class(cell.outcome)}"{title}>{text}</td>'


def _class(outcome: str) -> str:
    return outcome.replace(" ", "-")
