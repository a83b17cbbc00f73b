"""Mutations: ways in which a runtime could be broken, put into the application process before it starts.

*Guarantees*: a mutation changes the process that it is applied in, nothing on disk and nothing in the suite.
*Assumes*: applied once, before anything of the runtime is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
    """Put a function in the place of `owner.name`; it is given the original, then the arguments."""

    def put(changed: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, name)

        def instead(*arguments: Any, **named: Any) -> Any:
            return changed(original, *arguments, **named)

        setattr(owner, name, instead)
        return changed

    return put


class Once:
    """True at the `nth` call, False at every other."""

    def __init__(self, nth: int = 1) -> None:
        self._left = nth

    def __call__(self) -> bool:
        self._left -= 1
        return self._left == 0
