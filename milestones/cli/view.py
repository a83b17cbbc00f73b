"""A `Picture` on a terminal.

*Guarantees*: pure functions. Each task has a row while there is room, else each thread.
*Assumes*: rich.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from milestones.cli.picture import Instance, Picture, TaskRow, Thread

ROLES = {"active": "green", "restoring": "yellow", "warm-up": "magenta", "standby": "cyan", "promised": "dim"}
"""In the order in which they are counted, with their colours."""
STATES = {"Stable": "green", "RUNNING": "green", "ERROR": "red", "DEAD": "red", "Empty": "red", "Dead": "red"}
UNKNOWN = "–"
BAR_WIDTH = 16
HEADINGS = {"instance": "left", "thread": "left", "task": "left", "role": "left", "input lag": "right", "state": "left"}


def view(shown: Picture, now_ms: int, *, tasks: bool) -> RenderableType:
    """The whole view; `tasks`: a row for each, else one for each thread. `now_ms` since the epoch."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for heading, justify in HEADINGS.items():
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for number, instance in enumerate(shown.instances):
        if number:
            table.add_row()
        _add(table, instance, tasks)
    return Group(*_header(shown, now_ms), "", table, *_footer(shown)) if shown.instances else Group(
        *_header(shown, now_ms), *_footer(shown)
    )  # fmt: skip


def height(shown: Picture) -> int:
    """Lines that the view with a row for each task takes."""
    rows = sum(max(3, sum(max(1, len(t.tasks)) for t in i.threads)) + 1 for i in shown.instances)
    return rows + 8 + len(shown.notes)


def _header(shown: Picture, now_ms: int) -> Iterator[RenderableType]:
    title = Text.assemble((shown.application, "bold"), "  ", (shown.state, STATES.get(shown.state, "yellow")))
    if shown.generation is not None:
        title.append(f"  generation {shown.generation}")
    yield Rule(title, align="left", style="dim")
    threads = sum(len(instance.threads) for instance in shown.instances)
    what = [_number(len(shown.instances), "instance"), _number(threads, "thread"), *_counts(shown.rows)]
    yield Text(", ".join(what) + f"; input lag {_sum(row.input_lag for row in shown.rows)}")
    if shown.rebalanced_ms is not None:
        reasons = "; ".join(f"{reason} ({count})" if count > 1 else reason for reason, count in shown.reasons)
        ago = _ago(now_ms - shown.rebalanced_ms)
        yield Text(f"rebalanced {ago} ago: {reasons or 'no reason given'}", "dim", no_wrap=True, overflow="ellipsis")


def _footer(shown: Picture) -> Iterator[RenderableType]:
    unseen: dict[str, list[str]] = {}
    for instance in shown.instances:
        if instance.unseen is not None:
            unseen.setdefault(instance.unseen, []).append(instance.name)
    notes = [f"{', '.join(names)}: {why}; states and restore progress aren't known" for why, names in unseen.items()]
    notes += shown.notes
    if notes:
        yield ""
    yield from (Text(note, "yellow") for note in notes)


def _add(table: Table, instance: Instance, tasks: bool) -> None:
    """The instance's own lines stand beside its threads'."""
    rows = [row for thread in instance.threads for row in (_task_rows(thread) if tasks else _thread_row(thread))]
    own = list(_own(instance))
    for number in range(max(len(rows), len(own))):
        beside = rows[number] if number < len(rows) else []
        table.add_row(own[number] if number < len(own) else "", *beside)


def _own(instance: Instance) -> Iterator[Text]:
    yield Text(instance.name, "bold")
    state = instance.state or "running"
    version = f" {instance.version}" if instance.version else ""
    yield Text.assemble(
        (state, STATES.get(state, "yellow") if instance.state else "dim"), (f" {instance.stage}{version}", "dim")
    )
    yield Text(instance.host, "dim")
    if instance.tags:
        yield Text(" ".join(f"{key}={text}" for key, text in sorted(instance.tags.items())), "dim")


def _label(thread: Thread) -> Text:
    label = Text(thread.label)
    if thread.state is not None:
        label.append(f" {thread.state}", STATES.get(thread.state, "yellow"))
    if thread.leads:
        label.append(" leads", "dim")
    return label


def _task_rows(thread: Thread) -> Iterator[list[RenderableType]]:
    if not thread.tasks:
        told = Text(f"refused: {thread.error}", "red") if thread.error else Text(UNKNOWN, "dim")
        yield [_label(thread), told]
    for number, row in enumerate(thread.tasks):
        role = Text(row.role, ROLES[row.role])
        lag = "" if row.role not in ("active", "restoring") else _records(row.input_lag)
        yield [_label(thread) if number == 0 else "", row.task, role, lag, _state(row)]


def _state(row: TaskRow) -> RenderableType:
    if row.role == "restoring":
        left = f"{_records(row.behind)} left"
        if row.progress is None:
            return left
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(100, 100 * row.progress, BAR_WIDTH), f"{100 * row.progress:3.0f} %", left)
        return bar
    if row.role in ("standby", "warm-up"):
        return Text("caught up", "dim") if row.behind == 0 else f"{_records(row.behind)} behind"
    return Text("waits for its owner", "dim") if row.role == "promised" else ""


def _thread_row(thread: Thread) -> Iterator[list[RenderableType]]:
    of = {role: [row for row in thread.tasks if row.role == role] for role in ROLES}
    said = [f"{_sum(row.behind for row in of['restoring'])} to restore"] if of["restoring"] else []
    copies = of["standby"] + of["warm-up"]
    said += [f"standbys {_sum(row.behind for row in copies)} behind"] if copies else []
    lag = _sum(row.input_lag for row in of["active"] + of["restoring"])
    counts = Text(", ").join([Text(f"{len(rows)} {role}", ROLES[role]) for role, rows in of.items() if rows])
    yield [_label(thread), str(len(thread.tasks)), counts, lag, ", ".join(said)]


def _counts(rows: list[TaskRow]) -> Iterator[str]:
    found = Counter(row.role for row in rows)
    yield _number(found["active"] + found["restoring"], "task")
    for role in ("restoring", "warm-up", "standby", "promised"):
        if found[role]:
            yield f"{found[role]} {role}"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _records(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def _sum(counts: Iterator[int | None]) -> str:
    """Of what is known; a dash when nothing is."""
    known = [count for count in counts if count is not None]
    return f"{sum(known):,}" if known else UNKNOWN


def _ago(ms: int) -> str:
    seconds = max(0, ms // 1000)
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
