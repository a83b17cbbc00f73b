"""The Python that runs this program, for processes of the same installation.

*Guarantees*: never the path of a program that isn't Python: started for its `-m`, that would begin once more itself.
*Assumes*: freezers such as PyInstaller set `sys.frozen`.
"""

from __future__ import annotations

import sys


def python(what_for: str) -> str:
    """The path of the interpreter. `OSError` where there is none, which names what it was needed for."""
    if getattr(sys, "frozen", False):
        raise OSError(f"{what_for} needs a Python, and this program is frozen: {sys.executable} is the program itself")
    if not sys.executable:
        raise OSError(f"{what_for} needs a Python, and this one doesn't know its own path (sys.executable is empty)")
    return sys.executable
