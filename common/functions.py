"""Recognises coroutine functions and generator functions, which can't process records.

*Guarantees*: the functions here change nothing. They recognise a coroutine function in every form: a plain function, a
method, wrapped in `functools.partial`, or an object's `__call__`.
*Assumes*: a plain function that returns a coroutine can't be recognised before it is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

AWAITED_BY_NOBODY = (
    "is a coroutine function, and nothing awaits it: give a plain function. Slow calls belong into a processing thread "
    "(docs/blocking.md), or into asyncio.run inside the function"
)
"""The error text about a function for which `is_coroutine_function` holds."""


def is_coroutine_function(function: object) -> bool:
    """True if a call of `function` does nothing until it is awaited."""
    return _holds(inspect.iscoroutinefunction, function) or _holds(inspect.isasyncgenfunction, function)


def is_generator_function(function: object) -> bool:
    """True if a call of `function` does nothing until its result is iterated over."""
    return _holds(inspect.isgeneratorfunction, function)


def _holds(test: Callable[[object], bool], function: object) -> bool:
    while isinstance(function, partial):
        function = function.func
    if test(function):
        return True
    # For an object, its own `__call__` counts. A class is left out: calling it makes an object.
    return callable(function) and not isinstance(function, type) and test(type(function).__call__)
