"""Handlers: their decision, and the dead letter (KIP-1034)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from milestones.common.dead_letters import smaller
from milestones.common.errors import SerializationError
from milestones.common.records import Output, TaskId
from milestones.common.topology import handlers
from milestones.common.topology.handlers import (
    Action,
    ErrorContext,
    LogAndContinue,
    LogAndFail,
    RetryOrFail,
    describe_error,
    send_to_dead_letter_topic,
)

CONTEXT = ErrorContext("in", 3, 42, 1000, [("h", b"1")], b"k", b"v", TaskId(0, 3), "KSTREAM-MAP-0000000001")


def raised() -> ValueError:
    try:
        raise ValueError("bad räcord")
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("handler", "action", "letters"),
    [
        (LogAndContinue(), Action.CONTINUE, 0),
        (LogAndContinue("dlq"), Action.CONTINUE, 1),
        (send_to_dead_letter_topic("dlq"), Action.CONTINUE, 1),
    ],
)
def test_a_handler_that_skips_logs_and_writes_a_dead_letter_when_it_skips_and_has_a_topic(
    handler: Any, action: Action, letters: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        response = handler(CONTEXT, raised())
    assert response.action is action
    assert [letter.topic for letter in response.dead_letters] == ["dlq"] * letters
    assert "task 0_3, node KSTREAM-MAP-0000000001, record in-3@42: ValueError: bad räcord" in caplog.text


@pytest.mark.parametrize("handler", [LogAndFail(), RetryOrFail()])
def test_a_handler_that_fails_leaves_the_log_to_the_thread_that_dies(
    handler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert handler(CONTEXT, raised()) == (Action.FAIL, ())
    assert not caplog.records


def test_records_that_fail_one_after_the_other_are_told_of_seldom(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = LogAndContinue()
    for _ in range(1_000):
        assert handler(CONTEXT, raised()).action is Action.CONTINUE
    assert len(caplog.records) == handlers.MOST_LINES
    handler(CONTEXT._replace(processor_node_id="another"), raised())
    assert "node another" in caplog.messages[-1]
    handler(CONTEXT, KeyError("another kind of error"))
    assert "another kind of error" in caplog.messages[-1]
    monkeypatch.setattr(handlers, "PAUSE_S", 0)
    handler(CONTEXT, raised())
    assert f"; {1_000 - handlers.MOST_LINES} others were" in caplog.messages[-1]


def test_the_default_of_production_retries_what_kafka_calls_retriable() -> None:
    response = RetryOrFail()(CONTEXT._replace(retriable=True), raised())
    assert response == (Action.RETRY, ())


@pytest.mark.parametrize(("error", "traceback"), [(raised(), True), (SerializationError("not a LONG"), False)])
def test_a_skipped_record_is_logged_in_one_line_unless_user_code_raised(
    error: Exception, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    LogAndContinue()(CONTEXT, error)
    (entry,) = caplog.records
    assert (entry.exc_info is not None) == traceback
    assert "\n" not in entry.getMessage()


def test_an_error_names_the_input_record_or_the_output_or_neither() -> None:
    nowhere = CONTEXT._replace(topic=None, partition=-1, offset=-1)
    output = Output("out", 1, None, b"v", 5, None, "SINK")
    assert ", record in-3@42: " in describe_error(CONTEXT, raised())
    assert ", an output to out: " in describe_error(nowhere._replace(output=output), raised())
    assert ", no input record: " in describe_error(nowhere, raised())


def test_a_dead_letter_is_the_original_record_with_headers_of_the_error() -> None:
    (letter,) = send_to_dead_letter_topic("dlq")(CONTEXT, raised()).dead_letters
    assert letter[:5] == ("dlq", -1, b"k", b"v", 1000)
    headers = dict(letter.headers)
    stacktrace = headers.pop("__streams.errors.stacktrace")
    assert headers == {
        "h": b"1",
        "__streams.errors.exception": b"ValueError",
        "__streams.errors.message": "bad räcord".encode(),
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"3",
        "__streams.errors.offset": b"42",
    }
    assert b"Traceback" in stacktrace
    assert CONTEXT.headers == [("h", b"1")]


def test_what_a_dead_letter_says_of_an_error_has_a_bound() -> None:
    (letter,) = LogAndContinue("dlq")(CONTEXT, ValueError("x" * 400_000)).dead_letters
    said = dict(letter.headers or ())
    assert len(said["__streams.errors.message"] or b"") <= 2_000
    assert len(said["__streams.errors.stacktrace"] or b"") <= 16_000
    assert len(describe_error(CONTEXT, ValueError("x" * 400_000))) < 2_200


def test_a_dead_letter_that_is_too_large_says_less_of_the_error_and_keeps_the_record() -> None:
    (letter,) = LogAndContinue("dlq")(CONTEXT, raised()).dead_letters
    names = [name.removeprefix("__streams.errors.") for name, _ in letter.headers or ()]
    assert names == ["h", "exception", "message", "stacktrace", "topic", "partition", "offset"]
    less = smaller(letter.headers)
    assert [name for name, _ in less or ()] == [name for name, _ in letter.headers or () if "stacktrace" not in name]
    least = smaller(less)
    assert least == [one for one in less or () if "message" not in one[0]]
    assert smaller(least) is None
    assert smaller([("h", b"1"), ("__streams.errors.message", b"mine")]) is smaller(None) is None


def test_a_dead_letter_that_is_refused_has_no_letter_of_its_own() -> None:
    refused = CONTEXT._replace(topic=None, output=Output("dlq", -1, b"k", b"v", 1, [], "sink"))
    assert LogAndContinue("dlq")(refused, raised()) == (Action.CONTINUE, ())
    assert LogAndContinue("other")(refused, raised()).dead_letters


def test_a_dead_letter_of_a_punctuation_has_no_origin() -> None:
    context = ErrorContext(None, -1, -1, 5, [], None, None, TaskId(0, 0), None)
    (letter,) = LogAndContinue("dlq")(context, raised()).dead_letters
    assert (letter.key, letter.value, letter.node) == (None, None, "")
    assert ("__streams.errors.topic", None) in (letter.headers or [])
    assert ("__streams.errors.offset", b"-1") in (letter.headers or [])


def test_a_dead_letter_of_a_refused_output_is_the_output_as_its_origin_is_unknown() -> None:
    output = Output("out", 1, b"out key", b"out value", 5, None, "SINK")
    context = ErrorContext(None, -1, -1, 5, [], None, None, TaskId(0, 0), "SINK", output)
    (letter,) = LogAndContinue("dlq")(context, raised()).dead_letters
    assert letter[:5] == ("dlq", -1, b"out key", b"out value", 5)
