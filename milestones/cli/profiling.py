"""`milestones run --profile`: measures where the time of a run goes. Prints tables, and writes stacks for flame graphs.

*Guarantees*: in the table a node stands below the node that sends it records, or below the first one of several. Shares
of nodes are parts of the time of all tasks. Shares of threads are parts of the time of the run.
*Assumes*: this is the main thread, which gets signals.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from milestones.cli.console import err, tables
from milestones.client.profiling import ClientProfile, RunTimes
from milestones.common.task.profile import FLUSHES, FREEZES, PUNCTUATIONS, RECORDS, WRITES, Part
from milestones.common.task.timings import Timings

if TYPE_CHECKING:
    from milestones.client.streams import Streams
    from milestones.common.topology.nodes import Node
    from milestones.instance.application import Application

UNKNOWN = "–"
LEAST = 0.0005
"""A smaller share of a thread's time isn't shown."""
WORK = {
    RECORDS: "records: taken, merged, kept for the commit",
    PUNCTUATIONS: "punctuations: looked for",
    FLUSHES: "caches: flushed",
    FREEZES: "commits: changes gathered",
    WRITES: "commits: written to the stores",
}
"""The rows for work of the tasks themselves, by the name of the part."""
KINDS = {"serde": "deserialised: {0.call}", "store": "{0.name}: {0.call}", "punctuation": "punctuation"}
"""The titles of rows below a node, by the kind of the part."""


@contextmanager
def profiled(streams: Streams, stacks: Path | None) -> Iterator[None]:
    """Measure the code inside the block. Print the profile at the end, even after an error, and at each SIGUSR1.
    `stacks`: the file to which stacks are written at the end."""
    profile = ClientProfile(streams)

    def show(*_: object) -> None:
        tables().print(view(profile.times(), profile.application))

    number = getattr(signal, "SIGUSR1", None)
    before = None if number is None else signal.signal(number, show)
    try:
        yield
    finally:
        if number is not None:
            signal.signal(number, before)
        show()
        if stacks is not None:
            stacks.write_text("".join(f"{line}\n" for line in profile.times().tasks.stacks()), "utf-8")
            err().print(f"{stacks}: for speedscope or flamegraph.pl", highlight=False, markup=False, soft_wrap=True)


def view(times: RunTimes, application: Application) -> RenderableType:
    """Returns all tables of the profile."""
    seconds = times.wall_ns / 1e9
    return Group(
        _title(f"nodes: {times.tasks.all_ns / 1e9:.1f} s in tasks, of a run of {seconds:.1f} s"),
        _nodes(times.tasks, application, seconds),
        *_notes(times.tasks),
        _title("threads"),
        _threads(times),
        Text(_elsewhere(times), style="dim"),
    )


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _name(text: str, style: str = "") -> Text:
    """Returns the name of a row. On a narrow terminal the name is shortened, so that the numbers stay visible."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


# -- nodes


def _nodes(timings: Timings, application: Application, seconds: float) -> Table:
    table = _table("", "calls", "calls/s", "self", "total", "us/call", "on CPU")
    rows = _Rows(table, timings, seconds)
    parts = {f"sub-topology {sub.id}": sub for sub in application.subtopologies}
    if application.globals is not None:
        parts["global stores"] = application.globals
    for title, sub in parts.items():
        table.add_row(_name(title, style="bold"))
        for node, depth in tree(sub.nodes):
            rows.add(Part("node", node), node, depth)
            for part in _below(timings, node):
                rows.add(part, KINDS[part.kind].format(part), depth + 1, style="dim")
        table.add_section()
    for name, words in WORK.items():
        rows.add(Part("work", name), words, 0, total=False)
    return table


def tree(nodes: tuple[Node, ...]) -> Iterator[tuple[str, int]]:
    """Yields the nodes, beginning with the sources, each with its depth. A node comes below the first of its
    parents."""
    children: dict[str, list[str]] = {}
    for node in nodes:
        children.setdefault(next(iter(node.parents), ""), []).append(node.name)

    def below(name: str, depth: int) -> Iterator[tuple[str, int]]:
        for child in children.get(name, ()):
            yield child, depth
            yield from below(child, depth + 1)

    return below("", 1)


def _below(timings: Timings, node: str) -> list[Part]:
    """Returns the parts that are measured for a node in addition to its records: deserialisers, punctuations, and calls
    of its stores."""
    punctuation = Part("punctuation", node)
    stores = {
        part: None
        for caller in (Part("node", node), punctuation)
        for part in timings.called_by(caller)
        if part.kind == "store"
    }
    serdes = [Part("serde", node, call) for call in ("key", "value")]
    return [*(part for part in (*serdes, punctuation) if part in timings.parts), *stores]


class _Rows:
    """Adds a row for each part that was called."""

    def __init__(self, table: Table, timings: Timings, seconds: float) -> None:
        self._table, self._timings, self._seconds = table, timings, seconds

    def add(self, part: Part, name: str, depth: int, *, style: str = "", total: bool = True) -> None:
        timings, calls = self._timings, self._timings.given(part).calls
        first = _name("  " * depth + name, style=style)
        if not calls:
            if depth:  # no record came, or the node only passes records on
                self._table.add_row(first)
            return
        own_ns, on_cpu = timings.own_ns(part), timings.on_cpu(part)
        self._table.add_row(
            first, f"{calls:,}", f"{calls / self._seconds:,.0f}", self._share(own_ns),
            self._share(timings.total_ns(part)) if total else "", f"{own_ns / calls / 1000:,.2f}",
            UNKNOWN if on_cpu is None else f"{on_cpu:.0%}", style=style,
        )  # fmt: skip

    def _share(self, ns: float) -> str:
        return f"{ns / self._timings.all_ns:.1%}" if self._timings.all_ns else UNKNOWN


def _notes(timings: Timings) -> Iterator[Text]:
    share = timings.cost_ns / (timings.all_ns + timings.cost_ns) if timings.all_ns else 0.0
    yield Text(
        f"self: without the nodes and stores below; on CPU: the part of self that doesn't wait. The profile took about "
        f"{share:.0%} more, which isn't included.", style="dim",
    )  # fmt: skip


# -- threads


def _threads(times: RunTimes) -> Table:
    table = _table("", "time", "share", "on CPU")
    for name, timings in sorted(times.threads.items()):
        table.add_row(_name(name, style="bold"))
        for part in sorted(timings.parts, key=timings.own_ns, reverse=True):
            own_ns, on_cpu = timings.own_ns(part), timings.on_cpu(part)
            if own_ns < LEAST * times.wall_ns:
                continue
            table.add_row(
                _name(f"  {part.name}"), f"{own_ns / 1e9:.2f} s", f"{own_ns / times.wall_ns:.1%}",
                UNKNOWN if on_cpu is None else f"{on_cpu:.0%}",
            )  # fmt: skip
    return table


def _elsewhere(times: RunTimes) -> str:
    """Returns a text with the CPU time of the process, and the part of it in threads that the table doesn't show."""
    own_ns = sum(timings.cpu_ns for timings in times.threads.values())
    return (
        f"CPU time of the process: {times.cpu_ns / 1e9:.1f} s; {max(0, times.cpu_ns - own_ns) / 1e9:.1f} s of it in "
        "other threads (Kafka's client, RocksDB) and at start and end"
    )
