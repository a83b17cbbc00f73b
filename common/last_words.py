"""What a thread says of the error that it ends by, in the log and elsewhere.

*Guarantees*: nothing here raises, whatever the methods of the error and the log handlers of the program do. So a thread
may log the error that it dies of before it tells its owner, or after.
*Assumes*: nothing.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from milestones.common.diagnostics import brief, text_of, traceback_of


def typed(error: BaseException) -> str:
    """The error's class and its text, such as `KeyError: 'id'`."""
    return f"{type(error).__name__}: {text_of(error)}"


def say(log: logging.Logger, text: str, *arguments: object) -> None:
    """Log at INFO; what a log handler raises is left out."""
    with suppress(BaseException):
        log.info(text, *arguments)


def report(log: logging.Logger, text: str, *arguments: object, error: BaseException) -> None:
    """Log the error with its traceback. Where a log handler raises, stderr has the line, and the handler's error."""
    try:
        log.error(text, *arguments, exc_info=brief(error))
    except BaseException as second:
        with suppress(Exception):
            sys.stderr.write(f"{text % arguments} (a log handler raised {typed(second)})\n{traceback_of(error)}")
