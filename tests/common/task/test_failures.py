"""What becomes of a record that failed."""

from __future__ import annotations

import pytest

from milestones.common.errors import ProcessingError
from milestones.common.records import TaskId
from milestones.common.task.failures import decide
from milestones.common.topology.handlers import Action, ErrorContext, LogAndContinue, Response

CONTEXT = ErrorContext("in", 3, 42, 1000, [], b"k", b"v", TaskId(0, 3), "work")
KEY = "processing_exception_handler"


def failing(context: ErrorContext, error: Exception) -> Response:
    """A handler that stops, but gives a dead letter."""
    return LogAndContinue("dead")(context, error)._replace(action=Action.FAIL)


def test_a_skipped_record_leaves_its_dead_letter() -> None:
    (letter,) = decide(LogAndContinue("dead"), KEY, CONTEXT, ValueError("bad"))
    assert (letter.topic, letter.value) == ("dead", b"v")


def test_a_handler_that_fails_writes_no_dead_letter_as_the_record_is_met_again_at_the_next_start() -> None:
    with pytest.raises(ProcessingError, match=r"record in-3@42: ValueError: bad. The error will come back"):
        decide(failing, KEY, CONTEXT, ValueError("bad"))
