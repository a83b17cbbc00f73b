"""Planted: stream threads that wait for others, and some that don't. No broker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from compat_tests.apps.waits import FOR_KAFKA, LONGEST_MS, WAITED, Watch, callers, waits
from milestones.common.kafka.blocking_call import CallThread
from milestones.common.kafka.changelog_ends import ChangelogEnds
from milestones.common.kafka.membership import GroupMember
from milestones.common.thread_stacks import frames
from milestones.testing import until


@contextmanager
def thread_at(place: Callable[[], object], release: Callable[[], object], *, waiting: bool) -> Iterator[None]:
    """A stream thread that has come to a stop in `place`."""
    thread = threading.Thread(target=place, name="app-StreamThread-1", daemon=True)
    thread.start()

    def there() -> bool:
        frame = frames().get(thread.ident or 0)
        return frame is not None and waits(frame) is waiting

    until(there, "the thread is there", 10)
    yield
    release()
    thread.join(10)


def said(caplog: pytest.LogCaptureFixture, *moments_ms: int) -> int:
    """How often a watch complains that looks at these times."""
    watch = Watch()
    with caplog.at_level(logging.WARNING, "compat_tests"):
        for at in moments_ms:
            watch.look(at / 1000)
    return sum(record.getMessage().startswith(WAITED) for record in caplog.records)


def test_a_stream_thread_that_waits_for_a_message_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    event = threading.Event()
    with thread_at(event.wait, event.set, waiting=True):
        assert said(caplog, 0, LONGEST_MS // 2, LONGEST_MS + 10, LONGEST_MS + 20) == 1


def test_a_stream_thread_that_waits_for_a_lock_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    lock = threading.Lock()
    lock.acquire()

    def locked() -> None:
        with lock:
            pass

    with thread_at(locked, lock.release, waiting=True):
        assert said(caplog, 0, LONGEST_MS + 10) == 1


def test_short_waits_and_what_is_no_wait_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    event = threading.Event()
    with thread_at(event.wait, event.set, waiting=True):
        assert said(caplog, 0, LONGEST_MS - 10) == 0
    over = threading.Event()

    def works() -> None:
        while not over.is_set():
            time.sleep(0.001)

    with thread_at(works, over.set, waiting=False):
        assert said(caplog, 0) == 0


def test_a_call_to_kafka_that_another_thread_makes_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    event = threading.Event()
    caller = CallThread("calls", when_late=event.set)
    with thread_at(lambda: caller.call(event.wait, 10_000), event.set, waiting=False):
        until(caller_waits, "the stream thread waits for the caller's answer", 10)
        assert said(caplog, 0, LONGEST_MS + 10) == 0
    caller.close()


def caller_waits() -> bool:
    """Whether the stream thread stands in a wait."""
    thread = next(thread for thread in threading.enumerate() if thread.name == "app-StreamThread-1")
    frame = frames().get(thread.ident or 0)
    return frame is not None and any("CallThread.returned" in caller for caller in callers(frame)[1:])


def test_a_frame_between_two_lines_waits_for_nobody() -> None:
    code, outermost = works_on.__code__, None
    assert not waits(SimpleNamespace(f_code=code, f_lineno=None, f_back=outermost))  # type: ignore[arg-type]


def works_on() -> None:
    """Its frame is asked for a line while it has none."""


def test_the_calls_that_are_passed_over_exist() -> None:
    calls = {f"{one.__name__}.{name}" for one in (CallThread, ChangelogEnds, GroupMember) for name in vars(one)}
    assert calls >= FOR_KAFKA
