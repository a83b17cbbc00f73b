"""`Display`: shows the demo as a live panel on a terminal. If the output isn't a terminal, it prints a line every few
seconds.

*Guarantees*: `panel` and `line` are pure functions of a `View`. Events stay visible above the panel.
*Assumes*: one thread uses a `Display`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from milestones.demo.instance import Report

LINE_EVERY_S = 5.0
_BAR_WIDTH = 40


@dataclass(frozen=True)
class InstanceRow:
    """One instance in the panel. `report`: its last status, or None if it was killed."""

    number: int
    pid: int
    report: Report | None


@dataclass(frozen=True)
class View:
    """The state of the demo at one moment. `read`: the lines that are processed and committed. `rate`: the records per
    second of all instances."""

    lines: int
    sent: int
    read: int
    rate: float
    lag: int
    rows: Sequence[InstanceRow]
    top: Sequence[tuple[str, int]]
    stage: str


def panel(view: View) -> RenderableType:
    bars = Table.grid(padding=(0, 1))
    for title, done in (("text sent", view.sent), ("text counted", view.read)):
        bars.add_row(title, ProgressBar(max(1, view.lines), done, _BAR_WIDTH), f"{done:,} of {view.lines:,} lines")
    speed = Text.assemble((f"{view.rate:,.0f}", "bold"), " records/s    lag ", (f"{view.lag:,}", "bold"))
    top = Text("top words: ", overflow="ellipsis", no_wrap=True)
    for word, count in view.top:
        top.append(f"{word} ", "bold").append(f"{count:,}  ")
    title = f"word count, exactly once, on Apache Kafka; stage {view.stage}"
    return Panel(Group(bars, "", speed, "", _instances(view.rows), "", top), title=title, title_align="left")


def _instances(rows: Sequence[InstanceRow]) -> Table:
    table = Table("instance", "pid", "stage", "state", "tasks", box=None, padding=(0, 2, 0, 0))
    for row in rows:
        if row.report is None:
            table.add_row(f"{row.number}", f"{row.pid}", "", Text("killed", "red"), "")
            continue
        state = Text(row.report.state, "green" if row.report.running else "yellow")
        table.add_row(f"{row.number}", f"{row.pid}", row.report.stage, state, tasks(row.report))
    return table


def tasks(report: Report) -> Text:
    """Returns a text with the ids of an instance's tasks. Running tasks are green. Other tasks are yellow; those that
    restore are shown with the number of records left."""
    text = Text(f"{len(report.tasks)}: " if report.tasks else "none")
    for task, place in report.tasks.items():
        left = report.restoring.get(task, 0)
        text.append(f"{task} ({left:,} left) " if left else f"{task} ", "green" if place == "running" else "yellow")
    return text


def line(view: View) -> str:
    rows = ", ".join(
        f"instance {row.number} "
        + ("killed" if row.report is None else f"{row.report.state} with {len(row.report.tasks)} tasks")
        for row in view.rows
    )
    return (
        f"{view.sent:,} of {view.lines:,} lines sent, {view.read:,} counted; {view.rate:,.0f} records/s, "
        f"lag {view.lag:,}; {rows}"
    )


class Display:
    """Shows views and events on a console.

    *Owns*: the live panel, if the console is a terminal.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._begun = self._last_line = time.monotonic()

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, text: str) -> None:
        """Print a line about an event. It stays visible above the panel."""
        elapsed = time.monotonic() - self._begun
        self.console.print(f"[dim]{elapsed:6.1f} s[/dim]  {escape(text)}", highlight=False, soft_wrap=True)

    def show(self, view: View) -> None:
        if self._live is not None:
            self._live.update(panel(view))
        elif time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.event(line(view))
