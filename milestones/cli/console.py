"""Prints the command line's output: results go to stdout, everything else goes to stderr.

*Guarantees*: an error is printed as one panel that says what happened, where, and what to do. A traceback is printed
only with `--verbose`.
*Assumes*: nothing.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from milestones.common.config import ConfigErrors
from milestones.common.errors import MilestonesError

OK, FAILED, BAD_CONFIG, INTERRUPTED = 0, 1, 2, 130
Command = TypeVar("Command", bound=Callable[..., Any])

WIDTH = 120
_VERBOSE = "milestones.verbose"


def out() -> Console:
    """Returns the console for results (stdout)."""
    return Console(soft_wrap=True)


def tables() -> Console:
    """Returns the console for tables (stdout). If stdout isn't a terminal, the console is wide enough for usual
    tables."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def err() -> Console:
    """Returns the console for progress and errors (stderr)."""
    return Console(stderr=True)


def _note_verbose(context: click.Context, _: click.Parameter, value: bool) -> bool:
    root = context.find_root()
    root.meta[_VERBOSE] = root.meta.get(_VERBOSE, False) or value
    return value


def verbose_option(command: Command) -> Command:
    """Add the option `--verbose` to a command. A user may write it before or after the command's name."""
    option = click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_note_verbose,
        help="Show debug logs, and the traceback of an error.",
    )
    return option(command)


def is_verbose(context: click.Context) -> bool:
    """True if the user has given `--verbose`."""
    return bool(context.find_root().meta.get(_VERBOSE, False))


def show_error(error: BaseException, *, verbose: bool) -> int:
    """Print the error. Returns the exit code of the process."""
    if verbose:
        err().print(Text("".join(traceback.format_exception(error)).rstrip(), style="dim"))
    known = isinstance(error, MilestonesError)
    title = _TITLES.get(error.exit_code, "failed") if isinstance(error, MilestonesError) else "unexpected error"
    body = Text(str(error) if known else f"{type(error).__name__}: {error}")
    if isinstance(error, ConfigErrors):
        body = Text("\n".join(f"- {one}" for one in error.errors))
    if not verbose and not known:
        body.append("\n--verbose shows where it happened", style="dim")
    _print(body, title)
    return error.exit_code if isinstance(error, MilestonesError) else FAILED


def show_usage_error(error: click.ClickException) -> None:
    """Print the error in the command line, and the command that shows help."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "milestones"
    body = Text(error.format_message())
    body.append(f"\n{path} --help shows how", style="dim")
    _print(body, "can't read this")


def _print(body: Text, title: str) -> None:
    """Print a panel on a terminal. Elsewhere print plain text, so that logs can be searched."""
    console = err()
    if console.is_terminal:
        console.print(Panel(body, title=title, title_align="left", border_style="red"))
    else:
        console.print(Text(f"{title}: ") + body, soft_wrap=True)


_TITLES = {2: "can't run this", 3: "Kafka can't be reached", 4: "state can't be used"}
