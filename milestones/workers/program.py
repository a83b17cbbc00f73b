"""The command line that starts the running program once more.

*Guarantees*: the same interpreter, its options, and the arguments of this process. If the program can't be started once
more, an error says why.
*Assumes*: the program comes to the same place when it runs once more with the same arguments.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from milestones.common.errors import MilestonesError


def same_program() -> list[str]:
    """Return the command line of this process. Raises `MilestonesError` if it can't be run once more."""
    main = sys.modules.get("__main__")
    if reason := _why_not(main):
        raise MilestonesError(
            f"workers are processes that run this program once more, and {reason}: write the program into a file, and "
            "run it with `python app.py`, `python -m app` or `milestones run app.py --workers N`"
        )
    script = getattr(main, "__file__", None)
    arguments = [_absolute(argument, script) for argument in sys.orig_argv[1:]]
    return [sys.executable, *arguments]


def same_command(arguments: Sequence[str], command: str, extra: Sequence[str]) -> list[str]:
    """Return the command line of this process, in which `extra` follows the name of the sub-command. `arguments`: the
    arguments of the process."""
    _refuse_system()
    at = len(sys.orig_argv) - len(arguments)
    before = sys.orig_argv[1:at] if sys.orig_argv[at:] == list(arguments) else ["-m", "milestones.cli"]
    behind = list(arguments).index(command) + 1
    return [sys.executable, *before, *arguments[:behind], *extra, *arguments[behind:]]


def _why_not(main: ModuleType | None) -> str | None:
    _refuse_system()
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return "an interactive interpreter has no program"
    if multiprocessing.parent_process() is not None:
        return "this process was started by multiprocessing"
    file = getattr(main, "__file__", None)
    if (file is None and "-c" not in sys.orig_argv) or file == "<stdin>":
        return "this program was read from standard input"
    return None


def _refuse_system() -> None:
    if os.name != "posix":
        raise MilestonesError(f"workers need a POSIX system, and this is {sys.platform}: start more instances instead")


def _absolute(argument: str, script: str | None) -> str:
    """Return the path of the program's file, which may be relative to a directory that the program has left."""
    path = Path(argument)
    is_script = script is not None and not path.is_absolute() and Path(script).parts[-len(path.parts) :] == path.parts
    return str(script) if is_script and path.parts else argument
