"""Functions of the user that run for long are found, and named."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import pytest

from milestones.client.long_calls import LONG_MS, LongCalls
from milestones.common.mailbox import Mailbox
from milestones.ended_tasks.handler_thread import HandlerThread
from milestones.testing import until


class Calling(HandlerThread):
    """Makes one call after the other, as the runtime does. *Receives*: `next`, which ends a call."""

    def __init__(self) -> None:
        super().__init__("caller", nullcontext(), self.calls(), Mailbox(10_000, "answers"))  # type: ignore[arg-type]
        self.next, self.inside, self.over = threading.Event(), threading.Event(), False

    def calls(self) -> Iterator[Callable[[], None]]:
        while not self.over:
            yield partial(a_function_of_mine, self)


def a_function_of_mine(thread: Calling) -> None:
    thread.inside.set()
    thread.next.wait()
    thread.next.clear()


@pytest.fixture
def caller() -> Iterator[Calling]:
    """A thread of the runtime, which calls a function of the user."""
    thread = Calling()
    thread.start()
    thread.inside.wait()
    yield thread
    thread.over = True
    thread.next.set()
    thread.join()


def ident(thread: threading.Thread) -> int:
    assert thread.ident is not None
    return thread.ident


def test_a_call_is_long_once_it_lasts_and_is_named_with_its_thread(caller: Calling) -> None:
    calls = LongCalls()
    calls.look([ident(caller)], 0)
    assert (calls.found, calls.longest_seconds) == ((), 0)
    calls.look([ident(caller)], LONG_MS)
    (call,) = calls.found
    assert (call.thread, call.seconds) == ("caller", 1)
    assert call.function.startswith(f"a_function_of_mine, {__file__}:")
    calls.look([ident(caller)], 25_400)
    assert calls.longest_seconds == 25


def test_many_short_calls_of_one_function_are_no_long_one(caller: Calling) -> None:
    calls = LongCalls()
    for number in range(10):
        calls.look([ident(caller)], number * LONG_MS)
        assert calls.found == ()
        caller.inside.clear()
        caller.next.set()
        caller.inside.wait()


def test_a_thread_that_is_gone_is_in_no_call(caller: Calling) -> None:
    calls = LongCalls()
    calls.look([ident(caller)], 0)
    caller.over = True
    caller.next.set()
    until(lambda: not caller.is_alive(), "it has ended")
    calls.look([ident(caller)], 60_000)
    assert calls.found == ()
