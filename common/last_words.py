"""Reports the error that ends a thread, in the log and elsewhere.

*Guarantees*: nothing here raises, whatever the methods of the error and the log handlers of the program do. So a thread
may log the error that it dies of before it tells its owner, or after.
*Assumes*: nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress

from milestones.common.diagnostics import brief, text_of, traceback_of
from milestones.common.errors import UserExitError
from milestones.common.thread_stacks import user_call


def typed(error: BaseException) -> str:
    """The error's class and its text, such as `KeyError: 'id'`."""
    return f"{type(error).__name__}: {text_of(error)}"


def like(error: BaseException) -> BaseException:
    """An error of the same class and content, with `error` as its cause; `error` itself where its class makes none."""
    kind = type(error)
    try:
        own = kind.__new__(kind, *error.args)
        own.args = error.args
        own.__dict__.update(error.__dict__)
    except Exception:  # whatever a class of the user's does
        return error
    own.__cause__ = error
    return own


def is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C has interrupted the program: Python raises it in the main thread, whatever runs there."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def named(error: BaseException) -> Exception:
    """The error, or for one that isn't an `Exception` a `UserExitError` that names the function of the user's."""
    if isinstance(error, Exception):
        return error
    where = user_call(error) or "no function of the program's own"
    exit_ = UserExitError(
        f"left by {typed(error).rstrip(': ')}, in {where}: nothing of what it was called for is committed. To end the "
        "client call Streams.close(), also in a thread of its own; to skip a record raise an Exception"
    )
    exit_.__cause__ = error
    return exit_


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
