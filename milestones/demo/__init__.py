"""The demo: a stateful application on a real Kafka, one of its two instances killed, its result checked.

*Guarantees*: everything that was started has ended when `run` returns, and also when this process is killed.
*Assumes*: the extra `embedded` is installed; the network is needed once, for Kafka's jars.
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
    """Play the demo; the process's exit code, 0 only if every count was right (`common/errors.py` has the others).

    `seconds`: how long the text takes to flow in. `stage`: what `milestones=` takes, None for the newest. `lines`:
    how many lines of the text, from its beginning, None for all. `folder`: a new one, where Kafka's data, state and
    logs go and stay; None: they are deleted. Only on the main thread, for it answers SIGINT and SIGTERM: both give 130.
    """
    from milestones.demo.play import play

    return play(console, seconds, stage, lines, folder)
