"""The demo: runs a stateful application on a real Kafka, kills one of its two instances, and checks the result.

*Guarantees*: when `run` returns, or when this process is killed, everything that it has started ends.
*Assumes*: the extra `embedded` is installed. The network is needed once, to download Kafka's jars.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def run(
    console: Console | None = None,
    seconds: float = 60.0,
    *,
    stage: str | None = None,
    lines: int | None = None,
    folder: Path | None = None,
) -> int:
    """Run the demo. Returns the exit code of the process: 0 if every count was right, else see `common/errors.py`.

    `seconds`: the time in which the text is sent. `stage`: the stage or flags, or None for the newest stage. `lines`:
    the number of lines to send, from the beginning of the text, or None for all. `folder`: a new folder in which
    Kafka's data, state and logs are kept; with None they are deleted. Must be called in the main thread, because it
    handles SIGINT and SIGTERM. After such a signal it returns 130.
    """
    from milestones.demo.play import play

    return play(console, seconds, stage, lines, folder)
