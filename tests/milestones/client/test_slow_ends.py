"""What is said of an end that takes too long: a function of the user's is blamed when one runs, and never otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from milestones.client.client_events import Closing
from milestones.common.mailbox import Mailbox
from milestones.common.testing import StepClock

WAIT_S = 30


class Hanging:
    """A thread that waits: in a function of the user's, or in code of ours as for Kafka and for disks."""

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.box: Mailbox[int] = Mailbox(1)
        self.threads: list[threading.Thread] = []

    def in_a_function(self) -> None:
        self.inside.set()
        self.go_on.wait(WAIT_S)

    def thread(self, target: Callable[[], object], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    @property
    def wait(self) -> Callable[[], object]:
        """Waits for a message in code of ours only."""
        return partial(self.box.wait, WAIT_S * 1_000)

    def end(self) -> None:
        self.go_on.set()
        self.box.close()
        for thread in self.threads:
            thread.join(WAIT_S)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    monkeypatch.setattr("milestones.client.client_events.SAY_S", 0.01)
    found = Hanging()
    yield found
    found.end()


def given_up(hanging: Hanging, thread: threading.Thread, *helpers: threading.Thread) -> str:
    clock = StepClock()
    closing = Closing(clock, 2_000)
    clock.advance(2_000)
    assert not closing.join(thread, lambda: frozenset(one.ident or 0 for one in helpers))
    return str(closing.error())


def test_a_thread_in_a_function_of_the_user_s_is_named_with_it_and_the_function_is_to_return(hanging: Hanging) -> None:
    thread = hanging.thread(hanging.in_a_function, "app-StreamThread-1")
    assert hanging.inside.wait(WAIT_S)
    text = given_up(hanging, thread)
    assert "app-StreamThread-1 is in in_a_function" in text
    assert "let the function return sooner" in text


def test_a_thread_whose_helper_is_in_a_function_is_named_with_the_function(hanging: Hanging) -> None:
    helper = hanging.thread(hanging.in_a_function, "app-Handler-1")
    assert hanging.inside.wait(WAIT_S)
    text = given_up(hanging, hanging.thread(hanging.wait, "app-PollingThread"), helper)
    assert "app-PollingThread is in in_a_function" in text
    assert "let the function return sooner" in text


def test_no_function_is_blamed_where_kafka_or_a_disk_is_awaited(hanging: Hanging) -> None:
    text = given_up(hanging, hanging.thread(hanging.wait, "app-PollingThread"))
    assert "close_timeout_ms (2000): app-PollingThread is in wait" in text
    assert "no function of yours was running: Kafka or a disk was awaited" in text
    assert "return sooner" not in text
    assert "raise close_timeout_ms" in text


def test_one_function_among_several_threads_that_wait_is_what_is_named(hanging: Hanging) -> None:
    clock = StepClock()
    closing = Closing(clock, 2_000)
    clock.advance(2_000)
    busy = hanging.thread(hanging.in_a_function, "app-ProcessingThread-1")
    assert hanging.inside.wait(WAIT_S)
    for thread in (hanging.thread(hanging.wait, "app-PollingThread"), busy):
        assert not closing.join(thread)
    assert "app-ProcessingThread-1 is in in_a_function" in str(closing.error())
    assert "let the function return sooner" in str(closing.error())
