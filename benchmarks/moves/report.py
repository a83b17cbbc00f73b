"""The table and the JSON of the moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table

from benchmarks.moves.timeline import worst
from benchmarks.moves.work import Move
from benchmarks.report import columns, machine

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


def write_json(path: Path, moves: Sequence[Move], settings: dict[str, Any]) -> None:
    """The moves, with where and how they were measured."""
    document = {"machine": machine(), "settings": settings, "moves": [asdict(move) for move in moves]}
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    path.write_bytes(orjson.dumps(document, option=options) + b"\n")
