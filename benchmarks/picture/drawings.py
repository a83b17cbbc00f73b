"""The plots of the page, as SVG.

*Guarantees*: a contender has one colour in all of them.
*Assumes*: matplotlib, of the extra `bench`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from benchmarks.picture.measuring import Found
from benchmarks.picture.scenarios import BYTES, KEYS, PARTITIONS, RATE
from benchmarks.rows import Row

AXES = (PARTITIONS, BYTES, KEYS)
PERCENTILES = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9"}
BARE = dict.fromkeys(("Date", "Creator", "Format", "Type"))
SETTINGS: dict[Any, str] = {"svg.hashsalt": "picture", "svg.fonttype": "none"}
"""So that the same numbers give the same page, and text stays text."""


def label(row: Row) -> str:
    """Who, under which guarantee."""
    return f"{row.contender} ({'exactly' if row.guarantee.startswith('exactly') else 'at least'} once)"


def colours(found: Sequence[Found]) -> dict[str, str]:
    """One for each contender, the same for each guarantee."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    palette = colormaps["tab20"]
    names = dict.fromkeys(row.contender for one in found for row in one.rows)
    return {name: to_hex(palette(at * 2 % 20 + at // 10 % 2)) for at, name in enumerate(names)}


def bars(one: Found, colour: Mapping[str, str]) -> str:
    """The figure of one scenario; dots are the rounds. Nothing where nobody was measured."""
    rows = [row for row in one.rows if row.rounds]
    if not rows:
        return ""
    canvas = _canvas(8, 0.9 + 0.32 * len(rows))
    axes = canvas.subplots()
    for at, row in enumerate(rows):
        axes.barh(at, row.median(one.shown.name), 0.7, color=colour[row.contender], alpha=0.8)
        axes.plot([measured[one.shown.name] for measured in row.rounds], [at] * len(row.rounds), "k.", markersize=3)
    axes.set_yticks(range(len(rows)), [label(row) for row in rows])
    axes.set_xlabel(one.shown.title)
    axes.invert_yaxis()
    return _svg(canvas)


def axis(name: str, found: Sequence[Found], colour: Mapping[str, str]) -> str:
    """The figure of the scenarios on one axis, a line for each contender. Nothing where there are less than two."""
    points = sorted((one.scenario.at[name], one) for one in found if name in one.scenario.at) if found else []
    if len(points) < 2:
        return ""
    canvas = _canvas(8, 4)
    axes = canvas.subplots()
    _lines(axes, points, points[0][1].shown.name, colour)
    axes.set_xscale("log")
    axes.set_xticks([at for at, _ in points], [f"{at:,}" for at, _ in points])
    axes.minorticks_off()
    axes.set_xlabel(name)
    axes.set_ylabel(points[0][1].shown.title)
    axes.set_ylim(bottom=0)
    canvas.legend(loc="outside right center", fontsize=8)
    return _svg(canvas)


def latencies(found: Sequence[Found], colour: Mapping[str, str]) -> str:
    """Percentiles by rate, a panel for each, a line for each contender."""
    points = sorted((one.scenario.at[RATE], one) for one in found if RATE in one.scenario.at)
    if not points:
        return ""
    canvas = _canvas(12, 4)
    panels = canvas.subplots(1, len(PERCENTILES), squeeze=False)[0]
    for axes, (figure, title) in zip(panels, PERCENTILES.items(), strict=True):
        _lines(axes, points, figure, colour)
        axes.set_yscale("log")
        axes.set_title(title)
        axes.set_xlabel(RATE)
        axes.set_ylabel("ms")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return _svg(canvas)


def _lines(axes: Any, points: Sequence[tuple[int, Found]], figure: str, colour: Mapping[str, str]) -> None:
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for at, one in points:
        for row in one.rows:
            if row.rounds:
                lines.setdefault((row.contender, label(row)), []).append((at, row.median(figure)))
    for (contender, named), line in lines.items():
        style = "o-" if "exactly" in named else "s--"
        axes.plot(*zip(*line, strict=True), style, color=colour[contender], label=named, markersize=4)


def _canvas(width: float, height: float) -> Any:
    from matplotlib.figure import Figure as Canvas

    return Canvas(figsize=(width, height), layout="constrained")


def _svg(canvas: Any) -> str:
    from matplotlib import rc_context

    text = StringIO()
    with rc_context(SETTINGS):
        canvas.savefig(text, format="svg", metadata=BARE)
    return text.getvalue()[text.getvalue().index("<svg") :]
