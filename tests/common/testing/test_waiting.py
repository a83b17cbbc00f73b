"""What a case that waits may rely on."""

from __future__ import annotations

import pytest

from milestones.testing import DeadlineError, NotYet, until


def test_what_was_seen_last_is_told_when_it_does_not_come() -> None:
    with pytest.raises(DeadlineError, match="not within 0 s: it comes; last seen: 1 of 2"):
        until(lambda: NotYet("1 of 2"), "it comes", 0)


class Process:
    """It does what is waited for and dies, all between two looks."""

    def __init__(self, does: bool) -> None:
        self.does, self.done, self.lives = does, False, True

    def must_live(self) -> None:
        if not self.lives:
            raise AssertionError("it died")

    def has_done_it(self) -> bool:
        seen, self.done, self.lives = self.done, self.does, False
        return seen


def test_what_a_process_did_just_before_it_died_counts() -> None:
    process = Process(does=True)
    until(process.has_done_it, "it is done", 10, process.must_live)


def test_a_process_that_dies_ends_the_wait() -> None:
    process = Process(does=False)
    with pytest.raises(AssertionError, match="it died"):
        until(process.has_done_it, "it is done", 10, process.must_live)
