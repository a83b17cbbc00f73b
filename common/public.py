"""The path by which a user knows a class or a function.

*Guarantees*: tracebacks, error texts, dead letters and `repr` name it as it is imported, not where it is defined.
*Assumes*: one public module exports it, under its own name: there pickle looks it up.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def publish(module: str) -> None:
    """Give each class and function that this module exports the module's name."""
    exported = vars(sys.modules[module])
    for thing in map(exported.__getitem__, exported["__all__"]):
        if isinstance(thing, type) or inspect.isfunction(thing):
            thing.__module__ = module


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module: old names stand for new ones for one release, with a DeprecationWarning. Type
    checkers mustn't see it, as they would take any name for one of the module's."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        new = names[name]
        text = f"{module}.{name} is called {module}.{new} now; the next release has the new name only"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], new)

    return get


def path_of(thing: object) -> str:
    """`module:name` of a class or function, or of an object's class: as a setting names it."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"
