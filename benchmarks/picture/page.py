"""The picture as one page of HTML that needs no other file.

*Guarantees*: a pure function of what was found; rows that weren't measured say why.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from benchmarks.picture import drawings
from benchmarks.picture.measuring import Found
from benchmarks.report import first_line
from benchmarks.rows import Figure, Row

YARDSTICKS = {"loop": "loop", "kafka-streams warm": "Kafka Streams", "kafka-streams": "Kafka Streams",
              "groupby-count": "groupBy"}  # fmt: skip
"""The contenders that others are shown as shares of, where they take part in a scenario."""
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 95rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } caption { text-align: left }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
th { white-space: normal; vertical-align: bottom }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2), td.said { text-align: left }
td.said { color: #a33; white-space: normal } svg { max-width: 100%; height: auto } pre { white-space: pre-wrap }
"""

HOW = """Compare within this page only: all contenders took turns on one machine, with the broker on the same cores.
Numbers are medians of the rounds, dots are rounds. Outputs were checked before a run counted."""


def page(found: Sequence[Found], about: Mapping[str, Mapping[str, Any]], guarantees: Mapping[str, str]) -> str:
    """`about`: headings and what is told under them; `guarantees`: what each contender promises."""
    colour = drawings.colours(found)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>The whole picture</title>",
        f"<style>{STYLE}</style></head><body><h1>The whole picture</h1>",
        f"<p>{HOW}</p>",
        _told("Guarantees", guarantees),
    ]
    for one in found:
        heading = f"<h2>{escape(one.scenario.title)}</h2><p>{escape(one.title)}</p>"
        parts += [heading, "" if one.scenario.at and one.scenario.name != "count" else drawings.bars(one, colour)]
        parts.append(_table(one))
    for name in drawings.AXES:
        if drawn := drawings.axis(name, found, colour):
            parts += [f"<h2>By {escape(name)}</h2>", drawn]
    if drawn := drawings.latencies(found, colour):
        parts += ["<h2>Latency by rate</h2>", drawn]
    parts += [_told(heading, told) for heading, told in about.items()]
    return "\n".join([*parts, "</body></html>", ""])


def _told(heading: str, told: Mapping[str, Any]) -> str:
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>" for name, value in told.items())
    return f"<h2>{escape(heading)}</h2><table>{rows}</table>"


def _table(one: Found) -> str:
    yardsticks = [name for name in YARDSTICKS if any(row.contender == name and row.rounds for row in one.rows)]
    headings = ["contender", "guarantee", *(figure.title for figure in one.figures)]
    headings += [f"{one.shown.title}, of {YARDSTICKS[name]}" for name in yardsticks]
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(_rows(row, one, yardsticks, len(headings)) for row in one.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _rows(row: Row, one: Found, yardsticks: Sequence[str], columns: int) -> str:
    """The row, and under it what is said of it."""
    who = f"<td>{escape(row.contender)}</td><td>{escape(row.guarantee)}</td>"
    said = f"<td class='said' colspan='{columns - 2}'>{escape(first_line(row.said))}</td>" if row.said else ""
    if not row.rounds:
        return f"<tr>{who}{said}</tr>"
    shown = f"<tr>{who}{''.join(_cells(row, one, yardsticks))}</tr>"
    return f"{shown}<tr><td colspan='2'></td>{said}</tr>" if said else shown


def _cells(row: Row, one: Found, yardsticks: Sequence[str]) -> Iterator[str]:
    for figure in one.figures:
        yield f"<td>{row.median(figure.name):,.{figure.digits}f}</td>"
    for name in yardsticks:
        share = ratio(row, one.shown, one.rows, name)
        yield f"<td>{'-' if share is None else f'{share:.2f}'}</td>"


def ratio(row: Row, figure: Figure, rows: Sequence[Row], yardstick: str) -> float | None:
    """Of the yardstick's row under the same guarantee, or under the one that it has."""
    of = [other for other in rows if other.contender == yardstick and other.rounds]
    same = [other for other in of if other.guarantee == row.guarantee]
    return next((row.median(figure.name) / other.median(figure.name) for other in (*same, *of)), None)
