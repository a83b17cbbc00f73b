"""Renders an audit's report as one page of HTML with plots.

*Guarantees*: the page needs no other file. The contents of records are always shown as text.
*Assumes*: matplotlib.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import matplotlib as mpl
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from milestones.pipeline.audit.report import Audited, AuditReport, Finding
from milestones.pipeline.audit.rows import Problem

COLOURS = {
    Problem.LOST: "#c0392b",
    Problem.DUPLICATE: "#e67e22",
    Problem.UNEXPECTED: "#8e44ad",
    Problem.REORDERED: "#2980b9",
    Problem.WRONG: "#d4ac0d",
    Problem.MISPLACED: "#16a085",
}

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Audit of {name}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse; margin: 1em 0 }}
th, td {{ text-align: left; padding: .3em .8em; border-bottom: 1px solid #ddd; vertical-align: top }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums }}
code {{ font-size: 13px; overflow-wrap: anywhere }}
.verdict {{ font-size: 20px; padding: .6em .9em; border-radius: 6px; color: #fff; background: {colour} }}
.bad {{ color: #c0392b; font-weight: 600 }} .doubt {{ color: #777 }} svg {{ max-width: 100%; height: auto }}
</style>
<h1>Audit of {name}</h1>
<p class="verdict">{verdict}</p>
<p>{summary}</p>
{body}
</html>
"""


def write_page(report: AuditReport, path: Path) -> None:
    path.write_text(page(report), encoding="utf-8")


def page(report: AuditReport) -> str:
    verdict = "Nothing is wrong" if report.ok else f"{report.wrong:,} problems"
    if report.doubtful:
        verdict += f"; {report.doubtful:,} differences are doubtful"
    live = " The application ran meanwhile: what was under way is left out." if report.live else ""
    summary = (
        f"{report.records:,} input records of {len(report.inputs)} partitions ({escape(report.guarantee)}), folded and "
        f"compared in {report.seconds:.1f} s.{live}"
    )
    return _PAGE.format(
        name=escape(report.application_id),
        colour="#1e8449" if report.ok else "#c0392b",
        verdict=escape(verdict),
        summary=summary,
        body="\n".join(_body(report)),
    )


def _body(report: AuditReport) -> Iterable[str]:
    notes = [*report.notes, *(f"Sub-topology {sub} isn't looked at: {why}" for sub, why in report.skipped.items())]
    if notes:
        yield "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"
    for heading, items in (("Outputs", report.topics), ("Stores", report.stores)):
        if items:
            yield f"<h2>{heading}</h2>"
            yield _table(items)
            if any(one.found for one in items):
                yield _bars(items)
            for one in items:
                yield from _section(one)


def _table(items: Sequence[Audited]) -> str:
    head = "".join(f'<th class="n">{text}</th>' for text in ("should be", "is", *(p.value for p in Problem)))
    rows = []
    for one in items:
        counts = (_number(one.counts.get(problem, 0), bad=not one.doubts) for problem in Problem)
        rows.append(
            f'<tr><td>{escape(one.name)}</td><td class="n">{one.expected:,}</td><td class="n">{one.actual:,}</td>'
            f"{''.join(counts)}</tr>"
        )
    return f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"


def _number(count: int, *, bad: bool) -> str:
    kind = ("bad" if bad else "doubt") if count else ""
    return f'<td class="n {kind}">{f"{count:,}" if count else "–"}</td>'


def _section(one: Audited) -> Iterable[str]:
    if not (one.found or one.timeline):
        return
    yield f"<h3>{escape(one.name)}</h3>"
    for doubt in one.doubts if one.found else ():
        yield f'<p class="doubt">Need not come out the same a second time: {escape(doubt)}</p>'
    if one.timeline:
        yield _timeline(one)
    if one.examples:
        yield _examples(one.examples)


def _examples(examples: Sequence[Finding]) -> str:
    rows = "".join(
        f"<tr><td>{each.problem.value}</td>"
        + "".join(f"<td><code>{escape(text)}</code></td>" for text in (
            each.where, each.key, each.expected, each.actual, each.source))
        + "</tr>"
        for each in examples
    )  # fmt: skip
    head = "".join(f"<th>{text}</th>" for text in ("", "where", "key", "should be", "is", "input record"))
    return f"<table><tr>{head}</tr>{rows}</table>"


def _bars(items: Sequence[Audited]) -> str:
    """Draw the number of each problem as bars. The scale is logarithmic, so that one error next to a million others is
    visible.
    """
    shown = [one for one in items if one.found]
    figure = Figure(figsize=(9, 1.2 + 0.5 * len(shown)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(Problem)
    for number, problem in enumerate(Problem):
        counts = [one.counts.get(problem, 0) for one in shown]
        if any(counts):
            places = [row + (number - len(Problem) / 2) * height for row in range(len(shown))]
            axes.barh(places, counts, height, color=COLOURS[problem], label=problem.value)
    axes.set_yticks(range(len(shown)), [one.name for one in shown])
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel("problems")
    axes.legend(fontsize=8)
    return _svg(figure)


def _timeline(one: Audited) -> str:
    """Draw the number of expected records over time, and mark the times of the examples."""
    times = [_date(ms) for ms, _ in one.timeline]
    figure = Figure(figsize=(9, 2.2), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(times, [count for _, count in one.timeline], step="post", color="#cfd8dc")
    axes.xaxis_date()
    axes.set_ylabel("records")
    axes.set_ylim(bottom=0)
    for problem in Problem:
        at = [_date(each.time) for each in one.examples if each.problem is problem and each.time > 0]
        if at:
            middle = [axes.get_ylim()[1] * 0.5] * len(at)
            axes.scatter(at, middle, s=22, color=COLOURS[problem], label=problem.value, zorder=3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8)
    return _svg(figure)


def _date(ms: int) -> float:
    """As matplotlib counts time."""
    return float(date2num(datetime.fromtimestamp(ms / 1000, UTC)))  # type: ignore[no-untyped-call]


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "audit"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]
