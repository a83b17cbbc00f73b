"""A call that hangs is walked away from; all others behave as if the caller had made them."""

from __future__ import annotations

import threading

import pytest

from milestones.common.kafka.blocking_call import CallThread, LateError


def test_a_call_that_returns_in_time_is_just_made() -> None:
    made: list[int] = []
    caller = CallThread("calls", when_late=lambda: None)
    caller.call(lambda: made.append(1), 10_000)
    caller.call(lambda: made.append(2), 10_000)
    caller.close()
    assert made == [1, 2]


def test_a_thread_that_is_in_no_call_has_ended_with_all_it_holds_once_it_is_closed() -> None:
    for _ in range(100):
        caller = CallThread("calls-of-one-owner", when_late=lambda: None)
        caller.call(lambda: None, 10_000)
        caller.close()
        assert "calls-of-one-owner" not in {thread.name for thread in threading.enumerate()}


def test_the_error_of_a_call_is_raised_where_it_was_asked_for() -> None:
    caller = CallThread("calls", when_late=lambda: None)

    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        caller.call(fail, 10_000)
    caller.call(lambda: None, 10_000)
    caller.close()


def test_a_call_that_hangs_is_given_up_and_cleaned_up_once_it_returns() -> None:
    begun, go_on, cleaned = threading.Event(), threading.Event(), threading.Event()
    caller = CallThread("calls", when_late=cleaned.set)

    def hang() -> None:
        begun.set()
        go_on.wait()

    caller.call(lambda: None, 10_000)  # its thread is there: the next call is begun in time
    with pytest.raises(LateError):
        caller.call(hang, 500)
    assert begun.is_set()
    assert caller.late
    assert not cleaned.is_set()
    go_on.set()
    assert cleaned.wait(10)


def test_a_call_that_was_begun_is_looked_at_until_it_is_over() -> None:
    go_on = threading.Event()
    caller = CallThread("calls", when_late=lambda: None)
    caller.begin(go_on.wait, 10_000)
    assert caller.busy
    assert not caller.returned(0)
    go_on.set()
    while not caller.returned(1_000):
        pass
    assert not caller.busy
    caller.close()
