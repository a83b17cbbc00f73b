"""The names that users see: settings, metrics, the API, commands, flags. `released_names.txt` has those of the release.

A release writes the file anew: `python -m tests.docs.released`.

*Guarantees*: the names follow from the checkout alone. No Git is asked, so a shallow clone gives the same answer.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from docs.api import MODULES, markdown
from milestones.cli.main import cli
from milestones.common.config import KEYS
from milestones.common.metrics.scopes import SCOPES, metric_name
from milestones.flags import STAGES

FILE = Path(__file__).with_name("released_names.txt")


def names() -> set[str]:
    """Each with its kind in front: `setting poll_ms`, `method KStream.peek`."""
    settings = {f"setting {key}" for key in KEYS}
    metrics = {f"metric {scope.group} {metric_name(row)}" for scope in SCOPES for row in scope.rows}
    exported = {f"name {module.__name__}.{name}" for module in MODULES for name in module.__all__}
    flags = {f"flag {stage.flag}" for stage in STAGES if stage.flag is not None}
    return settings | metrics | exported | flags | {*methods(markdown())} | {*commands(cli, "milestones")}


def methods(page: str) -> Iterator[str]:
    """The methods and attributes on the page of the API, each with its class."""
    owner = ""
    for line in page.splitlines():
        if line.startswith("#"):
            owner = line.lstrip("# ")
        elif found := re.match(r"- `(\w+)[(:`]", line):
            yield f"method {owner}.{found[1]}"


def commands(command: click.Command, path: str) -> Iterator[str]:
    """The command with its options, and all commands below it."""
    yield f"command {path}"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield f"option {path} {max(parameter.opts, key=len)}"
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, f"{path} {name}")


if __name__ == "__main__":
    FILE.write_text("".join(f"{name}\n" for name in sorted(names())))
