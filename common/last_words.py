"""Reports the error that ends a thread.

*Guarantees*: no function here raises an error, even if methods of the given error or the program's log handlers do. So
a thread that dies can log its error without the risk of a second error.
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
    """Returns the error's class and text, such as `KeyError: 'id'`."""
    return f"{type(error).__name__}: {text_of(error)}"


def like(error: BaseException) -> BaseException:
    """Returns a new error with the same class and content, and with `error` as its cause. If the class doesn't allow
    this, returns `error` itself."""
    kind = type(error)
    try:
        own = kind.__new__(kind, *error.args)
        own.args = error.args
        own.__dict__.update(error.__dict__)
    except Exception:  # a class of the user may do anything
        return error
    own.__cause__ = error
    return own


def is_interrupt(error: BaseException) -> bool:
    """True if `error` is the `KeyboardInterrupt` of Ctrl-C, which Python raises in the main thread."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def named(error: BaseException) -> Exception:
    """Return the error if it is an `Exception`. Otherwise return a `UserExitError` that names the user's function."""
    if isinstance(error, Exception):
        return error
    where = user_call(error) or "no function of the program's own"
    exit_ = UserExitError(
        f"left by {typed(error).rstrip(': ')}, in {where}: the work that it was called for isn't committed. To end the "
        "client call Streams.close(), which any thread may do; to skip a record raise an Exception"
    )
    exit_.__cause__ = error
    return exit_


def say(log: logging.Logger, text: str, *arguments: object) -> None:
    """Log at INFO. Errors of log handlers are ignored."""
    with suppress(BaseException):
        log.info(text, *arguments)


def report(log: logging.Logger, text: str, *arguments: object, error: BaseException) -> None:
    """Log the error with its traceback. If a log handler raises an error, both errors are written to stderr."""
    try:
        log.error(text, *arguments, exc_info=brief(error))
    except BaseException as second:
        with suppress(Exception):
            sys.stderr.write(f"{text % arguments} (a log handler raised {typed(second)})\n{traceback_of(error)}")
