"""Python processes of this installation that work for the instance.

*Guarantees*: a process imports what this one does. Ctrl-C is not for it: it ends with its input.
*Assumes*: its module reads its standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from milestones.common.python_program import python


def begin(module: str, **pipes: Any) -> subprocess.Popen[Any]:
    """Start `python -m module`, its input a pipe; `pipes`: as in `Popen`. `OSError`, also of a frozen program."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [python(f"the helper process {module}"), "-m", module],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        **pipes,
    )
