"""The commands that need no broker: `assignor`, `reads`, `convert`, `instructions`.

*Guarantees*: as `cli.py`.
*Assumes*: nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import rich_click as click
from rich.console import Console

from benchmarks import assignor, options, reads
from benchmarks.convert import work as convert
from benchmarks.instructions import work as instructions
from benchmarks.instructions.counters import Kind, best
from benchmarks.instructions.programs import COUNT, WORKS
from benchmarks.options import words
from benchmarks.report import write_json
from milestones.cli.console import err

NARROWEST: Final = 180
"""Columns of a table that isn't shown on a terminal."""


def out() -> Console:
    """Where results go."""
    console = Console()
    return console if console.is_terminal else Console(width=NARROWEST)


def progress(line: str) -> None:
    """Tell how far it is."""
    err().print(line, soft_wrap=True, highlight=False)


@click.command("assignor")
def assignor_() -> None:
    """What a rebalance of 500 tasks on 50 members costs the leader. Needs no broker."""
    out().print(assignor.table(assignor.timings(progress)))


@click.command("reads")
@click.option("--engines", "names", default=",".join(reads.NAMES), show_default=True, callback=words)
@click.option("--rows", default=250_000, show_default=True, type=click.IntRange(min=reads.MIN_ROWS))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=1, show_default=True)
@options.json_file
def reads_(names: list[str], rows: int, rounds: int, seed: int, json_file: Path | None) -> None:
    """What a read of a store costs on each engine. Needs no broker."""
    with tempfile.TemporaryDirectory(prefix="milestones-bench-") as directory:
        found = reads.measure(names, Path(directory), rows, rounds, seed, progress)
    out().print(reads.table(f"reads: {rows:,} rows, medians of {rounds}", found))
    if json_file is not None:
        json_file.write_text(json.dumps({"rows": rows, "seed": seed, "us_per_row": found}, indent=2) + "\n")


@click.command("convert")
@click.option("--entries", default=1_000_000, show_default=True, type=click.IntRange(min=1000))
@click.option("--tasks", default=8, show_default=True, type=click.IntRange(min=1),
              help="That have them in equal parts.")  # fmt: skip
@click.option("--stores", default=1, show_default=True, type=click.IntRange(min=1), help="Of each task.")
@click.option("--kills", default=0, show_default=True, type=click.IntRange(min=0),
              help="Of each conversion of one more round, at random moments (kill -9).")  # fmt: skip
@options.rounds
@options.seed
@options.json_file
def convert_(json_file: Path | None, rounds: int, **data: int) -> None:
    """Take an instance's state into ranges (m6), and give it out into folders again. Needs no broker."""
    with tempfile.TemporaryDirectory(prefix="milestones-bench-") as directory:
        found, killed = convert.measure(Path(directory), rounds=rounds, log=progress, **data)
    title = f"convert: {data['entries']:,} entries of {data['tasks']} tasks with {data['stores']} stores"
    out().print(convert.table(f"{title}, medians of {rounds}", found))
    if json_file is not None:
        settings = {"rounds": rounds, **data}
        write_json(
            json_file, settings, conversions=[asdict(one) for one in found], killed=[asdict(one) for one in killed]
        )


@click.command("instructions")
@options.stages("baseline,m6")
@click.option("--works", default=COUNT, show_default=True, callback=options.words_of("work", WORKS),
              help=f"Of {', '.join(WORKS)}; with commas.")  # fmt: skip
@click.option("--counter", type=click.Choice(["instructions", "cpu-time"]),
              help="By default instructions where there is valgrind.")  # fmt: skip
@click.option("--records", default=3_000, show_default=True, type=click.IntRange(min=500), help="Of a commit.")
@click.option("--intervals", default=5, show_default=True, type=click.IntRange(min=1),
              help="Commits, after one that isn't counted.")  # fmt: skip
@click.option("--keys", default=4_000, show_default=True, type=click.IntRange(min=1))
@options.seed
@click.option("--keep", is_flag=True, help="Keep the numbers for later comparisons.")
@click.option("--compare", is_flag=True,
              help="End with exit code 1 if a cost differs from the kept one by 3 % or more, with 3 if one isn't kept.")
@click.option("--profile", is_flag=True,
              help="Instructions by Python function, in place of those by part. Needs valgrind and a C compiler.")
@options.json_file
def instructions_(
    stage_names: list[str], works: list[str], counter: Kind | None, keep: bool, compare: bool, profile: bool,
    json_file: Path | None, **sizes: int,
) -> None:  # fmt: skip
    """What a record costs, by part, on each stage. Needs no broker."""
    if profile:
        if keep or compare or counter == "cpu-time":
            raise click.UsageError("--profile counts instructions that no kept number has: leave out --keep, --compare "
                                   "and --counter cpu-time")  # fmt: skip
        profiles = instructions.profile(works, stage_names, **sizes)
        for found in profiles:
            out().print(instructions.profile_table(found))
        if json_file is not None:
            write_json(json_file, sizes, profiles=[asdict(found) for found in profiles])
        return
    costs = instructions.measure(works, stage_names, counter or best(), progress, **sizes)
    for shown in instructions.tables(costs):
        out().print(shown)
    for line in instructions.differences(costs, sizes):
        out().print(line, soft_wrap=True, highlight=False)
    result = instructions.compared(costs, sizes)
    if keep:
        instructions.keep(costs, sizes)
    if json_file is not None:
        write_json(json_file, sizes, costs=[asdict(cost) for cost in costs])
    if compare:
        sys.exit(result)


COMMANDS: Final[Sequence[click.Command]] = (assignor_, reads_, convert_, instructions_)
