"""`until` waits for a condition. A test with real threads or processes lets time pass only in this way.

*Guarantees*: the condition is checked repeatedly: until it holds, until the deadline, or until a process or thread that
the test needs has died. The error says what was waited for, and what was seen last.
*Assumes*: conditions are cheap and change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_S = 0.1


class DeadlineError(AssertionError):
    """The awaited condition didn't become true in time."""


class NotYet(str):
    """The result of a condition that doesn't hold yet. The text says why."""

    __slots__ = ()


def until(
    condition: Callable[[], object], what: str, timeout_s: float = 60.0, alive: Callable[[], None] = lambda: None
) -> None:
    """Return when `condition()` is true. Raises `DeadlineError` after `timeout_s`. A condition that doesn't hold yet
    may return `NotYet(...)` with a text that describes the progress. `alive` raises an error when waiting makes no
    sense any more.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        dead = _caught(alive)  # called before the condition, as an effect from just before the death counts
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
