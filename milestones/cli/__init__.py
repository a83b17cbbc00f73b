"""The command line: `milestones --help`.

*Guarantees*: exit codes are those of `milestones.common.errors`; an error is one panel, a traceback only with
`--verbose`.
*Assumes*: nothing; the runtime is loaded by the commands that need it.
"""

from __future__ import annotations

from milestones.cli.main import cli, main

__all__ = ["cli", "main"]
