"""Mutations: ways in which a runtime could be broken, put into the application process before it starts.

*Guarantees*: a mutation changes the process that it is applied in, nothing on disk and nothing in the suite.
*Assumes*: applied once, before anything of the runtime is made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial, wraps
from inspect import Parameter
from typing import Any

MUTATIONS: dict[str, Callable[[], None]] = {}
"""By name, with dashes: what breaks the runtime. The docstrings say how."""


def mutation(apply: Callable[[], None]) -> Callable[[], None]:
    """Enter a function into the table, under its own name."""
    MUTATIONS[apply.__name__.replace("_", "-")] = apply
    return apply


def mutations_by(put: Callable[[Any], None], changes: Mapping[str, Any]) -> None:
    """Enter changes into the table, by name: `put` puts one into the runtime."""
    MUTATIONS.update({name: partial(put, change) for name, change in changes.items()})


def mutation_by(put: Callable[[Any], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a change into the table, under its own name."""

    def enter(change: Callable[..., Any]) -> Callable[..., Any]:
        mutations_by(put, {change.__name__.replace("_", "-"): change})
        return change

    return enter


def around(owner: object, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put a function in the place of `owner.name`; it is given the original, then the arguments. `TypeError` when the
    function doesn't take the original's arguments."""

    def put(changed: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, name)
        _must_take(changed, inspect.signature(original).parameters.values())

        @wraps(original)
        def instead(*arguments: Any, **named: Any) -> Any:
            return changed(original, *arguments, **named)

        setattr(owner, name, instead)
        return changed

    return put


def around_each(owners: Iterable[object], name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `around`, in each of these: the classes that are one thing on different stages."""

    def put(changed: Callable[..., Any]) -> Callable[..., Any]:
        for owner in owners:
            around(owner, name)(changed)
        return changed

    return put


def _must_take(changed: Callable[..., Any], parameters: Collection[Parameter]) -> None:
    """Arguments in their order, and by name where the original takes them by name only."""
    ordered = [one for one in parameters if one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    named = [one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
    inspect.signature(changed).bind("original", *ordered, **dict.fromkeys(named))


class Once:
    """True at the `nth` call, False at every other."""

    def __init__(self, nth: int = 1) -> None:
        self._left = nth

    def __call__(self) -> bool:
        self._left -= 1
        return self._left == 0
