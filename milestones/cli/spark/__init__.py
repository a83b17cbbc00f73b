"""Defines `milestones spark` and the table of its commands.

*Guarantees*: `--help` works without PySpark. If a command doesn't find PySpark, the error says what to install.
*Assumes*: commands import `milestones.pipeline` inside their functions.
"""

from __future__ import annotations

import rich_click as click

from milestones.cli.spark.audit import audit
from milestones.cli.spark.history import archive, backfill
from milestones.cli.spark.running import run
from milestones.cli.spark.snapshot import snapshot


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def spark() -> None:
    """Run an application's topology on Spark, and do batch work for an application."""


COMMANDS: tuple[click.Command, ...] = (run, snapshot, audit, archive, backfill)

for command in COMMANDS:
    spark.add_command(command)

__all__ = ["spark"]
