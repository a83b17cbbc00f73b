"""What a benchmark leaves: a table, JSON, a plot.

*Guarantees*: pure functions of rows, but for the files they write.
*Assumes*: matplotlib only for the plot.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import libversion
from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.table import Table

from benchmarks.contenders import KAFKA_STREAMS_VERSION
from benchmarks.errors import BenchmarkError
from benchmarks.rows import Figure, Row
from milestones.embedded import KAFKA_VERSION

YARDSTICK = "loop"
"""The contender that others are compared with, where a work has no other."""


def columns(title: str, *headings: str, left: int = 2, title_at: JustifyMethod = "left") -> Table:
    """A table without rows; so many of its columns are of text, the others of numbers."""
    shown = Table(title=title, box=SIMPLE_HEAD, title_justify=title_at)
    for at, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if at < left else "right")
    return shown


def table(title: str, figures: Sequence[Figure], rows: Sequence[Row], yardstick: str = YARDSTICK) -> Table:
    """Medians; for the compared ones the ratio to the yardstick, or the figure's own, under the same guarantee."""
    headings = list[str]()
    for figure in figures:
        of = (figure.yardstick or yardstick).removeprefix("milestones ").removeprefix("{}, ")
        headings += [figure.title, f"of {of}"] if figure.compared else [figure.title]
    shown = columns(title, "contender", "guarantee", *headings)
    for of_text in shown.columns[:2]:
        of_text.no_wrap = True
    for row in rows:
        shown.add_row(row.contender, row.guarantee, *(_cells(row, figures, rows, yardstick) if row.rounds else ()))
    shown.caption = "\n".join(f"{row.contender}, {row.guarantee}: {first_line(row.said)}" for row in rows if row.said)
    shown.caption_justify = "left"
    return shown


def first_line(said: str) -> str:
    """What is said of a row, without what a log ends with."""
    return (said.splitlines() or [""])[0].removesuffix(":")


def _cells(row: Row, figures: Iterable[Figure], rows: Iterable[Row], yardstick: str) -> Iterator[str]:
    for figure in figures:
        yield f"{row.median(figure.name):,.{figure.digits}f}"
        if figure.compared:
            share = ratio(row, figure.name, rows, figure.yardstick or yardstick)
            yield "-" if share is None else f"{share:.0%}"


def ratio(row: Row, figure: str, rows: Iterable[Row], yardstick: str = YARDSTICK) -> float | None:
    """`row` by the yardstick's row of the same guarantee, medians both; None when it didn't take part. `{}` in
    `yardstick`: see `Figure`."""
    of = yardstick.replace("{}", row.contender.rpartition(", ")[0])
    for other in rows:
        if other.contender == of and other.guarantee == row.guarantee and other.rounds:
            return row.median(figure) / other.median(figure)
    return None


def machine() -> dict[str, Any]:
    """Where and when, and with which versions."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "milestones": version("milestones"),
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": libversion()[0],
        "kafka": KAFKA_VERSION,
        "kafka-streams": KAFKA_STREAMS_VERSION,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def write_json(path: Path, settings: Mapping[str, Any], **measured: Any) -> None:
    """What was measured, with where and how."""
    document = {"machine": machine(), "settings": settings, **measured}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")


def plot(path: Path, title: str, figures: Sequence[Figure], rows: Sequence[Row]) -> None:
    """Bars: a panel per figure, a group per contender, a colour per guarantee; dots are the rounds."""
    contenders = list(dict.fromkeys(row.contender for row in rows))
    guarantees = list(dict.fromkeys(row.guarantee for row in rows))
    canvas = _canvas((4 * len(figures), 1.6 + 0.5 * len(rows)))
    canvas.suptitle(title)
    height = 0.8 / len(guarantees)
    for axes, figure in zip(canvas.subplots(1, len(figures), sharey=True, squeeze=False)[0], figures, strict=True):
        for row in (row for row in rows if row.rounds):
            place = guarantees.index(row.guarantee)
            at = contenders.index(row.contender) + height * (place - (len(guarantees) - 1) / 2)
            label = row.guarantee if row.contender == contenders[0] else None
            axes.barh(at, row.median(figure.name), height, color=f"C{place}", alpha=0.75, label=label)
            rounds = [measured[figure.name] for measured in row.rounds]
            axes.plot(rounds, [at] * len(rounds), "k.", markersize=3)
        axes.set_yticks(range(len(contenders)), contenders)
        axes.set_xlabel(figure.title)
    canvas.axes[0].invert_yaxis()
    canvas.legend(*canvas.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(guarantees))
    canvas.savefig(path)


def plot_shares(path: Path, title: str, figures: Sequence[Figure], rows: Sequence[Row], whole: str) -> None:
    """Bars: a panel per figure and guarantee, a group per work, a colour per contender. A bar is the share of what the
    contender `whole` has; dots are the rounds."""
    canvas = _canvas((9, 1.6 + 0.3 * len(rows)))
    canvas.suptitle(f"{title}, as shares of {whole}")
    guarantees, works = (list(dict.fromkeys(of)) for of in zip(*((r.guarantee, r.work) for r in rows), strict=True))
    contenders = [name for name in dict.fromkeys(row.contender for row in rows) if name != whole]
    height = 0.8 / len(contenders)
    panels = [(figure, guarantee) for guarantee in guarantees for figure in figures]
    found = {(row.work, row.contender, row.guarantee): row for row in rows if row.rounds}
    drawn = canvas.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (figure, guarantee) in zip(drawn, panels, strict=True):
        for place, contender in enumerate(contenders):
            for at, work in enumerate(works):
                row, yardstick = found.get((work, contender, guarantee)), found.get((work, whole, guarantee))
                if row is None or yardstick is None:
                    continue
                by, y = yardstick.median(figure.name), at + height * (place - (len(contenders) - 1) / 2)
                axes.barh(y, row.median(figure.name) / by, height, color=f"C{place}", alpha=0.75,
                          label=None if at else contender)  # fmt: skip
                axes.plot([one[figure.name] / by for one in row.rounds], [y] * len(row.rounds), "k.", markersize=3)
        axes.axvline(1, color="k", linewidth=0.8)
        axes.set_yticks(range(len(works)), works)
        axes.set_xlabel(f"{figure.title}, {guarantee}")
    canvas.axes[0].invert_yaxis()
    canvas.legend(*canvas.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(contenders))
    canvas.savefig(path)


def _canvas(size: tuple[float, float]) -> Any:
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise BenchmarkError(f"a plot needs matplotlib ({error}): pip install 'milestones[bench]'") from error
    return Canvas(figsize=size, layout="constrained")
