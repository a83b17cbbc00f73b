"""Times a run, as `milestones run --profile` does.

*Guarantees*: the same tables on stdout, the same file. What draws tables is loaded by a run that has some: to load it
takes a tenth of an application's start.
*Assumes*: the main thread runs the client.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

from milestones import Streams


def loaded() -> ModuleType:
    """What the command times with. What it keeps for good it has from here on."""
    from milestones.cli import profiling

    return profiling


def profiled(streams: Streams, stacks: Path) -> AbstractContextManager[None]:
    """As the command's: the stacks go to this file."""
    times: AbstractContextManager[None] = loaded().profiled(streams, stacks)
    return times
