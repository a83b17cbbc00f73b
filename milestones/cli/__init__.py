"""The command line interface (`milestones --help`).

*Guarantees*: exit codes are those in `milestones.common.errors`. An error is printed as one panel. A traceback is
printed only with `--verbose`.
*Assumes*: nothing. Commands that need the runtime import it themselves.
"""

from __future__ import annotations

from milestones.cli.main import cli, main

__all__ = ["cli", "main"]
