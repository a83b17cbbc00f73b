"""Finds out which code the threads of this process are running.

*Guarantees*: a call stops no thread, and can't deadlock. Python 3.11 locks its list of threads while it collects their
frames. If the garbage collector ran in this time, another thread might start. That thread would hold the interpreter's
lock and wait for the list's lock, which is a deadlock (CPython's gh-106883). So garbage collection is off meanwhile.
"""

from __future__ import annotations

import gc
import sys
import sysconfig
from pathlib import Path
from types import FrameType

_OWN = str(Path(__file__).parents[1] / "_")[:-1]
_PYTHON = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen "})
_INSTALLED = ("site-packages", "dist-packages")


def frames() -> dict[int, FrameType]:
    """Returns the innermost frame of each thread, by the thread's `ident`."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def in_user_code(frame: FrameType | None) -> FrameType | None:
    """Returns the frame of the user's function that this package has called and that is still running. Returns None if
    the thread runs no user function. `frame`: the thread's innermost frame."""
    found: FrameType | None = None
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_OWN):
            if found is not None:
                break
        elif not path.startswith(_PYTHON) or any(folder in path for folder in _INSTALLED):
            found = frame
        frame = frame.f_back
    return found


def user_call(error: BaseException) -> str | None:
    """Returns the name and the place of the user's function in which the error was raised. Returns None if no user
    function, called by this package, has raised it."""
    found: str | None = None
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename.startswith(_OWN):
            found = None
        elif found is None and not _is_installed(code.co_filename):
            found = f"{code.co_qualname}, {code.co_filename}:{step.tb_lineno}"
        step = step.tb_next
    return found


def _is_installed(path: str) -> bool:
    return path.startswith(_PYTHON) or any(folder in path for folder in _INSTALLED)


def place(ident: int) -> str:
    """Returns a text with the user's function that the thread is running. If the innermost function is another one, it
    is named, too."""
    innermost = frames().get(ident)
    if innermost is None:
        return "no Python code"
    user = in_user_code(innermost)
    if user is None or user is innermost:
        return said(innermost)
    return f"{said(user)} (now in {said(innermost)})"


def said(frame: FrameType) -> str:
    """Returns function, file and line of a frame as text."""
    return f"{frame.f_code.co_name}, {frame.f_code.co_filename}:{frame.f_lineno}"
