"""Starts Python processes that work for the instance.

*Guarantees*: a process imports the same modules as this one. Ctrl-C doesn't reach it: the process ends when its input
is closed.
*Assumes*: the module that the process runs reads its standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from milestones.common.python_program import python


def begin(module: str, **pipes: Any) -> subprocess.Popen[Any]:
    """Start `python -m module`, with a pipe as its input. `pipes`: further arguments of `Popen`. Raises `OSError`, also
    in a frozen program."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [python(f"the helper process {module}"), "-m", module],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        **pipes,
    )
