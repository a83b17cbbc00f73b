"""Waiting for a condition: the only way in which a test that has real threads or processes lets time pass.

*Guarantees*: the condition is looked at again and again until it holds, until the deadline, or until what must live has
died. The error says what was waited for and what was seen last.
*Assumes*: conditions are cheap and change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_S = 0.1


class DeadlineError(AssertionError):
    """What was waited for didn't come."""


class NotYet(str):
    """A condition that doesn't hold yet, and why."""

    __slots__ = ()


def until(
    condition: Callable[[], object], what: str, timeout_s: float = 60.0, alive: Callable[[], None] = lambda: None
) -> None:
    """Return once `condition()` is true; `DeadlineError` after `timeout_s`. A condition that isn't true may return a
    text that says how far things are, as `NotYet(...)`. `alive` raises when waiting makes no sense any more."""
    deadline = time.monotonic() + timeout_s
    while True:
        dead = _caught(alive)  # before the look: what something did just before it died counts
        seen = condition()
        if seen and not isinstance(seen, NotYet):
            return
        if dead is not None:
            raise dead
        if time.monotonic() > deadline:
            raise DeadlineError(f"not within {timeout_s:.0f} s: {what}" + (f"; last seen: {seen}" if seen else ""))
        time.sleep(PAUSE_S)


def _caught(alive: Callable[[], None]) -> AssertionError | None:
    try:
        alive()
    except AssertionError as error:
        return error
    return None
