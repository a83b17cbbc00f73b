"""The path by which a user knows a class or a function.

*Guarantees*: tracebacks, error texts, dead letters and `repr` name it as it is imported, not where it is defined.
*Assumes*: one public module exports it, under its own name: there pickle looks it up.
"""

from __future__ import annotations

import inspect
import sys


def publish(module: str) -> None:
    """Give each class and function that this module exports the module's name."""
    exported = vars(sys.modules[module])
    for thing in map(exported.__getitem__, exported["__all__"]):
        if isinstance(thing, type) or inspect.isfunction(thing):
            thing.__module__ = module


def path_of(thing: object) -> str:
    """`module:name` of a class or function, or of an object's class: as a setting names it."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"
