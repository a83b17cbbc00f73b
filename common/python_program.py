"""Finds the Python interpreter that runs this program, to start more processes of the same installation.

*Guarantees*: the path of a frozen program is never returned. A frozen program would ignore `-m`, and start itself once
more.
*Assumes*: freezers such as PyInstaller set `sys.frozen`.
"""

from __future__ import annotations

import sys


def python(what_for: str) -> str:
    """Returns the path of the interpreter. Raises `OSError` if there is none. `what_for`: names in the error's text
    what needs the interpreter."""
    if getattr(sys, "frozen", False):
        raise OSError(f"{what_for} needs a Python, and this program is frozen: {sys.executable} is the program itself")
    if not sys.executable:
        raise OSError(f"{what_for} needs a Python, and this one doesn't know its own path (sys.executable is empty)")
    return sys.executable
