"""`Steps`: work that waits for answers, as a generator. Between two steps its owner can do other work.

*Guarantees*: a step waits no longer than its caller allows. If the owner closes the generator, the work ends at its
present place, as after an error.
*Assumes*: one thread takes all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

Steps: TypeAlias = Generator[None, int, T]
"""A generator that yields while it waits for an answer. The caller sends the number of ms that the next step may
wait."""

AT_ONCE_MS = 1_000
"""The ms that a step may wait if its owner has no other work to do."""


def to_the_end(steps: Steps[T]) -> T:
    """Take all steps one after the other, and return their result."""
    try:
        next(steps)
        while True:
            steps.send(AT_ONCE_MS)
    except StopIteration as end:
        result: T = end.value
        return result


def caught_in_steps(steps: Steps[object], *kinds: type[E]) -> Steps[E | None]:
    """Take the steps. If they end with an error of one of these kinds, return the error, else None. So the caller can
    handle the error outside of an `except` block (see `failures.caught`)."""
    try:
        yield from steps
    except kinds as error:
        return error
    return None


def until_returned(returned: Callable[[int], bool]) -> Steps[None]:
    """Wait until `returned(wait_ms)` returns True."""
    wait_ms = 0
    while not returned(wait_ms):
        wait_ms = yield


def until_done(run_once: Callable[[int], T | None]) -> T:
    """Call `run_once(wait_ms)` until it returns a result. `run_once` returns None while the work isn't finished."""
    while (result := run_once(AT_ONCE_MS)) is None:
        pass
    return result
