"""The table of the moves."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.moves.timeline import worst
from benchmarks.moves.work import Move
from benchmarks.report import columns

HEADINGS = (
    "move", "guarantee", "took s", "gap before s", "longest gap s", "median gap s", "others' gap s", "restored",
    "session s", "transaction s", "rest s",
)  # fmt: skip


def table(title: str, moves: Sequence[Move]) -> Table:
    """A row per move. `restored`: records at the take-over, by moved task."""
    shown = columns(title, *HEADINGS)
    for move in moves:
        shown.add_row(*_cells(move))
    return shown


def _cells(move: Move) -> list[str]:
    times = [move.took, move.before, move.longest, move.middle, move.others]
    parts = [worst(getattr(one, name) for one in move.parts) for name in ("session", "transaction", "rest")]
    return [
        move.name,
        move.guarantee,
        *("-" if value is None else f"{value:.2f}" for value in times),
        " ".join(map(str, move.restored.values())) or "-",
        *(f"{value:.2f}" if move.parts else "-" for value in parts),
    ]
