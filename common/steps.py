"""What waits for answers, done step by step: between two steps its owner does something else.

*Guarantees*: a step waits no longer than it is told to. Steps that are given up end where they stand, as by an error.
*Assumes*: one owner drives them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

Steps: TypeAlias = Generator[None, int, T]
"""It yields while it waits for an answer, and is sent how many ms the next step may wait for it."""

AT_ONCE_MS = 1_000
"""How long a step may wait while nothing else is done."""


def to_the_end(steps: Steps[T]) -> T:
    """Take all steps at once; what came of them."""
    try:
        next(steps)
        while True:
            steps.send(AT_ONCE_MS)
    except StopIteration as end:
        result: T = end.value
        return result


def caught_in_steps(steps: Steps[object], *kinds: type[E]) -> Steps[E | None]:
    """The error of these kinds that the steps end with, returned outside of an `except` block, as in
    `failures.caught`; None without one."""
    try:
        yield from steps
    except kinds as error:
        return error
    return None


def until_returned(returned: Callable[[int], bool]) -> Steps[None]:
    """Wait until `returned(wait_ms)` says so."""
    wait_ms = 0
    while not returned(wait_ms):
        wait_ms = yield


def until_done(run_once: Callable[[int], T | None]) -> T:
    """The result of something that is driven by `run_once(wait_ms)`, and has none while it is under way."""
    while (result := run_once(AT_ONCE_MS)) is None:
        pass
    return result
