"""Options that several commands have.

*Guarantees*: a bad value is refused before anything is measured.
*Assumes*: nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from benchmarks.job import GUARANTEES

Command = Callable[..., Any]
Option = Callable[[Command], Command]


def words(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    """What stands between commas."""
    return [word for word in value.split(",") if word]


def words_of(what: str, known: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A callback as `words`, which refuses what isn't known. `what` each is."""

    def found(context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
        given = words(context, parameter, value)
        if unknown := sorted(set(given) - set(known)):
            raise click.BadParameter(f"there is no {what} {', '.join(unknown)}, only {', '.join(known)}")
        return given

    return found


class _Counts(click.ParamType[list[int]]):
    """Numbers, with commas."""

    name = "numbers"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, list):
            return value
        numbers = [int(word) if word.isdigit() else -1 for word in str(value).split(",")]
        if min(numbers) < self._least or len(set(numbers)) < len(numbers):
            self.fail(f"{value!r} isn't different numbers from {self._least} on, with commas", param, ctx)
        return numbers


class _NewFile(click.Path):
    """A file to write, in a folder that exists: hours of measuring shall not end in a missing one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.absolute().parent.is_dir():
            self.fail(f"there is no folder {path.parent}: make it first", param, ctx)
        return path


def _guarantees(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    return list(GUARANTEES) if value == "both" else [value]


def stages(default: str) -> Option:
    """`--stages`."""
    return click.option("--stages", "stage_names", default=default, show_default=True, callback=words,
                        help="Ours: stages, or flags joined by +; with commas.")  # fmt: skip


def threads(default: str) -> Option:
    """`--threads`, several numbers of them."""
    return click.option("--threads", "thread_counts", default=default, show_default=True, type=_Counts(1),
                        help="That call user code, with commas: each contender once with each number.")  # fmt: skip


def instances(default: str) -> Option:
    """`--instances`, several numbers of them."""
    return click.option("--instances", "instance_counts", default=default, show_default=True, type=_Counts(1),
                        help="Processes, with commas: each contender once with each number.")  # fmt: skip


def workers(default: str) -> Option:
    """`--workers`, several numbers of them."""
    return click.option("--workers", "worker_counts", default=default, show_default=True, type=_Counts(1),
                        help="Processes of one command, with commas: ours once with each number, Kafka Streams with as "
                        "many threads.")  # fmt: skip


def tasks(default: str) -> Option:
    """`--tasks`, several numbers of them."""
    return click.option("--tasks", "task_counts", default=default, show_default=True, type=_Counts(2),
                        help="With commas: each contender once with each number.")  # fmt: skip


def records(default: int, least: int = 1000) -> Option:
    """`--records`."""
    return click.option("--records", default=default, show_default=True, type=click.IntRange(min=least))


def seconds(default: int) -> Option:
    """`--seconds`."""
    return click.option("--seconds", default=default, show_default=True, type=click.IntRange(min=2),
                        help="That are measured.")  # fmt: skip


def commit(default: int) -> Option:
    """`--commit`."""
    return click.option("--commit", "commit_interval_ms", default=default, show_default=True, metavar="MS",
                        type=click.IntRange(min=1), help="The commit interval.")  # fmt: skip


def late(default: str) -> Option:
    """`--late`, several times."""
    return click.option("--late", "late_ms", default=default, show_default=True, type=_Counts(0), metavar="MS",
                        help="Of answers to commits, with commas: each contender once with each.")  # fmt: skip


def warm(default: int) -> Option:
    """`--warm`."""
    return click.option("--warm", default=default, show_default=True, type=click.IntRange(min=1),
                        help="Seconds before that.")  # fmt: skip


def rate(default: float, most: float, what: str) -> Option:
    """`--rate`."""
    return click.option("--rate", default=default, show_default=True, type=click.FloatRange(1, most), help=what)


def guarantee_by(default: str) -> Option:
    """`--guarantee`."""
    return click.option("--guarantee", "guarantees", default=default, show_default=True, callback=_guarantees,
                        type=click.Choice([*GUARANTEES, "both"]))  # fmt: skip


def together(*options: Option) -> Option:
    """All of these options, in this order."""

    def put(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return put


def counts(name: str, to: str, default: str, what: str) -> Option:
    """Several different numbers, with commas."""
    return click.option(name, to, default=default, show_default=True, type=_Counts(1), help=what)


NEW_FILE = _NewFile(path_type=Path, dir_okay=False)
rounds = click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1))
json_file = click.option("--json", "json_file", type=NEW_FILE, help="Write all rounds here.")
keep = click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Leave the instances' logs here.")
keys = click.option("--keys", default=100_000, show_default=True, type=click.IntRange(1, 1_000_000))
seed = click.option("--seed", default=1, show_default=True, help="Of the input and of the order of runs.")
guarantee = guarantee_by("both")
