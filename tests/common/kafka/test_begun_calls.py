"""A client's calls that another thread makes: nobody touches the client meanwhile."""

from __future__ import annotations

import threading
from time import monotonic_ns

import pytest

from milestones.common.errors import OwnershipError
from milestones.common.kafka.begun_calls import BegunCalls
from milestones.common.steps import to_the_end


class Client(BegunCalls):
    """`taken`: how many calls have succeeded."""

    def __init__(self) -> None:
        super().__init__("calls", when_late=lambda: None)
        self.go_on, self.taken = threading.Event(), 0

    def begin(self) -> None:
        self._begin_call(self._wait, 10_000, self._took)

    def begin_look(self) -> None:
        self._check_free()
        self._look = lambda wait_ms: False

    def _wait(self) -> None:
        self.go_on.wait()

    def _took(self) -> None:
        self.taken += 1

    def close(self, timeout_ms: int) -> None:
        until_ns = monotonic_ns() + timeout_ms * 1_000_000
        to_the_end(self._call_over(lambda: (until_ns - monotonic_ns()) // 1_000_000))
        self._call_thread.close()


def test_what_a_call_is_for_is_done_when_its_answer_is_seen() -> None:
    client = Client()
    client.begin()
    assert (client.returned(0), client.taken) == (False, 0)
    client.go_on.set()
    while not client.returned(1_000):
        pass
    assert client.taken == 1
    client.close(0)


def test_while_a_call_is_under_way_no_other_one_is_begun() -> None:
    client = Client()
    client.begin()
    with pytest.raises(OwnershipError, match="under way"):
        client.begin()
    client.go_on.set()
    client.close(10_000)


def test_what_only_looks_may_be_left_for_another_call() -> None:
    client = Client()
    client.begin_look()
    assert not client.returned(0)
    client.go_on.set()
    client.begin()
    while not client.returned(1_000):
        pass
    assert client.taken == 1
    client.close(0)


def test_nothing_returns_that_was_not_begun() -> None:
    with pytest.raises(OwnershipError, match="no call"):
        Client().returned(0)


def test_a_client_that_is_closed_leaves_a_call_that_does_not_return() -> None:
    client = Client()
    client.begin()
    client.close(0)
    client.go_on.set()
    assert client.taken == 0
