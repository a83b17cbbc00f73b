"""What is said of an error has a bound."""

from __future__ import annotations

import logging
import traceback

import pytest

from milestones.common.diagnostics import MOST_CHARACTERS, MOST_LINES, brief, shortened, text_of, traceback_of

LARGE = "x" * 400_000


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("length", [0, MOST_CHARACTERS])
def test_a_text_that_fits_is_left_as_it_is(length: int) -> None:
    assert shortened("y" * length) == "y" * length


def test_of_a_longer_text_the_beginning_the_end_and_its_length_are_left() -> None:
    text = shortened("begin" + LARGE + "end")
    assert len(text) <= MOST_CHARACTERS
    assert text.startswith("beginxxx")
    assert text.endswith("xxxend")
    assert "400,008 characters" in text


@pytest.mark.parametrize("most", [0, 1, 10, 60, 100])
def test_no_bound_is_too_small_for_it(most: int) -> None:
    assert len(shortened(LARGE, most)) <= max(most, 60)


def test_the_text_of_an_error_whose_str_raises_says_so() -> None:
    assert text_of(UnspeakableError()) == "(no text: its __str__ raised RuntimeError)"
    assert "(no text: " in traceback_of(raised(ValueError("v"), raised(UnspeakableError())))


def test_an_error_that_is_short_is_logged_as_it_is() -> None:
    error = raised(ValueError("short"), raised(KeyError("cause")))
    assert brief(error) is error


def test_of_a_long_error_the_log_has_name_place_and_cause(caplog: pytest.LogCaptureFixture) -> None:
    cause = raised(KeyError(LARGE))
    cause.add_note(LARGE)
    error = raised(ValueError(f"can't read {LARGE}"), cause)
    logging.getLogger("test").error("it failed", exc_info=brief(error))
    (line,) = caplog.text.split("it failed\n")[1:]
    assert len(line) < 4 * MOST_CHARACTERS
    for part in ("ValueError: can't read xxx", "KeyError: 'xxx", "direct cause", __file__, "400,011 characters"):
        assert part in line


def test_errors_that_name_each_other_as_their_cause_have_an_end() -> None:
    one, other = ValueError(LARGE), KeyError(LARGE)
    one.__cause__, other.__cause__ = other, one
    assert len(traceback_of(one)) < 4 * MOST_CHARACTERS


def test_a_traceback_has_a_bound_however_deep_it_is() -> None:
    def deep(left: int) -> None:
        if left == 0:
            raise ValueError(LARGE)
        try:
            deep(left - 1)
        except ValueError as error:
            raise ValueError(LARGE) from error

    with pytest.raises(ValueError, match="x") as caught:
        deep(60)
    assert len("".join(traceback.format_exception(caught.value))) > 20_000_000
    assert len(traceback_of(caught.value)) <= MOST_LINES * MOST_CHARACTERS
