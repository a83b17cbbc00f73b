"""Where the threads of this process are.

*Guarantees*: asking stops nobody. Python 3.11 holds the lock of its list of threads while it makes the answer; a
garbage collection that this sets off may let a thread run that begins, and waits for that lock with the interpreter's
own in its hand: then all stands (CPython's gh-106883). So nothing is collected meanwhile.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType


def frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by its `ident`."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()
