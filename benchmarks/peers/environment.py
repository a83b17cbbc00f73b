"""A virtual environment for each peer in Python, since one asks for another confluent-kafka than we do.

*Guarantees*: an environment that `python_of` returns is complete: one that couldn't be filled is filled anew the next
time, and two processes don't fill one at once.
*Assumes*: pip finds packages as it is set up for this user.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from benchmarks.errors import BenchmarkError

INSTALL_S = 600.0
COMPLETE = "complete"
"""A file in an environment, written last."""
TAIL_LINES = 5


def python_of(name: str, requirements: Sequence[str], cache: Path | None = None) -> Path:
    """The interpreter of an environment with these packages; made once, and kept in the user's cache.
    `BenchmarkError` with pip's last lines when they can't be installed."""
    root = cache if cache is not None else user_cache_path("milestones", appauthor=False) / "peers"
    made_for = "\n".join([sys.version, sys.base_prefix, *requirements])
    folder = root / f"{name}-{hashlib.sha256(made_for.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            _called(name, [sys.executable, "-m", "venv", str(folder)])
            _called(name, [str(python), "-m", "pip", "install", "--quiet", "--no-input", *requirements])
            (folder / COMPLETE).touch()
    return python


def _called(name: str, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchmarkError(f"{name} can't be installed: {error}") from error
    if done.returncode != 0:
        said = " / ".join((done.stdout + done.stderr).strip().splitlines()[-TAIL_LINES:])
        raise BenchmarkError(f"{name} can't be installed: {said}")
