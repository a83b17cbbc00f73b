"""Gives public classes and functions the module path under which a user imports them.

*Guarantees*: tracebacks, error texts, dead letters and `repr` show the path under which a user imports a class, not the
module where it is defined.
*Assumes*: one public module exports each class under the class's own name, because pickle looks up classes by this
path.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def publish(module: str) -> None:
    """Set `__module__` of each class and function in the module's `__all__` to the module's name."""
    exported = vars(sys.modules[module])
    for thing in map(exported.__getitem__, exported["__all__"]):
        if isinstance(thing, type) or inspect.isfunction(thing):
            thing.__module__ = module


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a `__getattr__` for a module in which names have changed. For one release the old names still work, with
    a DeprecationWarning. `names` maps old names to new ones. The module must hide the `__getattr__` from type checkers,
    because otherwise they would accept any name."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        new = names[name]
        text = f"{module}.{name} is called {module}.{new} now; the next release has the new name only"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], new)

    return get


def path_of(thing: object) -> str:
    """Returns `module:name` of a class or function, or of an object's class. Settings name objects in this form."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"
