"""Calls that stop all other threads of the process come one at a time, and leave the others their share."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from milestones.common.state.engines.locked_calls import LONG_MS, REST_MS, LockedCalls
from milestones.common.testing import StepClock


@pytest.mark.parametrize(
    ("took_ms", "rest_ms"), [(0, 0), (LONG_MS, 0), (LONG_MS + 20, LONG_MS // 2 + 10), (5_000, REST_MS)]
)
@pytest.mark.parametrize("fails", [False, True])
def test_after_a_call_that_took_long_others_have_their_share(took_ms: int, rest_ms: int, fails: bool) -> None:
    clock = StepClock()
    began_ms = clock.monotonic_ms()

    with suppress(ValueError), LockedCalls(clock).made():
        clock.advance(took_ms)
        if fails:
            raise ValueError
    assert clock.monotonic_ms() - began_ms == took_ms + rest_ms


def test_two_threads_make_no_such_calls_together() -> None:
    calls, under_way, together = LockedCalls(), 0, 0

    def make() -> None:
        nonlocal under_way, together
        for _ in range(50):
            with calls.made():
                under_way += 1
                together = max(together, under_way)
                pause.wait(0.0001)
                under_way -= 1

    pause = threading.Event()
    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == 1
