"""Databases that are opened in another process: a library that never comes back can't be ended but with it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from milestones.common.state.engines.log_tails import USED_AGAIN

SECONDS = 60

OPENER = """
import sys
from pathlib import Path
from milestones.common.errors import StateCorruptError
from milestones.common.state.engines.by_name import open_engines

for directory in sys.argv[2:]:
    try:
        open_engines(sys.argv[1]).open(Path(directory)).close()
        print("opened")
    except StateCorruptError:
        print("damaged")
"""

NOISES: tuple[Callable[[random.Random, int], bytes], ...] = (
    random.Random.randbytes,
    lambda rng, size: bytes(rng.choices([0, *USED_AGAIN], k=size)),
    lambda rng, size: bytes(rng.choices(range(14), k=size)),
)
"""What the disk may have where nothing was written yet; the library's readers are led astray by small numbers."""


def opened(engine: str, folders: Iterable[Path]) -> list[str]:
    """What comes of each of them."""
    command = [sys.executable, "-c", OPENER, engine, *map(str, folders)]
    return subprocess.run(command, timeout=SECONDS, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
