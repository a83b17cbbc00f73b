"""Shortens texts about errors, for error texts, the log, `status` and the headers of a dead letter.

The text of an error of user code often contains the whole record, and its traceback contains the text once more. So
these texts are shortened. No data is lost, because the record itself is in its topic.

*Guarantees*: no text is longer than its limit. A shorter text isn't changed. No function here raises an error, even if
methods of the given error raise one.
*Assumes*: nothing.
"""

from __future__ import annotations

import traceback
from typing import Final

MOST_CHARACTERS: Final = 2_000
"""The most characters of one text. A traceback may have `MOST_LINES` times as many."""
MOST_LINES: Final = 8

_LEFT_OUT: Final = " ... ({:,} characters in all) ... "


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the text if it fits. Otherwise return its beginning and its end, with the text's length between them."""
    if len(text) <= most:
        return text
    between = _LEFT_OUT.format(len(text))
    half = max(0, most - len(between)) // 2
    return text[:half] + between + text[len(text) - half :]


def text_of(error: BaseException) -> str:
    """Returns the text of an error, shortened. Works also if the error's `__str__` raises."""
    try:
        return shortened(str(error))
    except BaseException as second:
        return f"(no text: its __str__ raised {type(second).__name__})"


def line_of(error: BaseException) -> str:
    """Returns the text of an error, shortened, in one line."""
    return " ".join(text_of(error).split())


def class_of(error: BaseException) -> str:
    """Returns the name of the error's class, or of its cause's class if it has a cause. Serves as a metric's label."""
    return type(error.__cause__ or error).__name__


def traceback_of(error: BaseException) -> str:
    """Returns the traceback of an error and of the errors that led to it, shortened."""
    lines = traceback.format_exception(brief(error))
    return shortened("".join(map(shortened, lines)), MOST_LINES * MOST_CHARACTERS)


def brief(error: BaseException) -> BaseException:
    """Returns an error that can be logged with its traceback. If all texts are short enough, this is `error` itself.
    Otherwise it is a new error with the same class name, the same traceback and a shortened text. The texts of errors
    that led to it are shortened, too."""
    return _brief(error, set())


def _brief(error: BaseException, seen: set[int]) -> BaseException:
    seen.add(id(error))
    before = {"__cause__": error.__cause__, "__context__": error.__context__}
    shown = {
        name: _brief(one, seen) if one is not None and id(one) not in seen else None for name, one in before.items()
    }
    text, notes = text_of(error), [shortened(str(note)) for note in getattr(error, "__notes__", ())]
    if _is_whole(error, text, notes) and all(shown[name] is before[name] for name in before):
        return error
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": lambda _: text}
    made: BaseException = type(kind.__name__, (Exception,), names)()
    made.__traceback__ = error.__traceback__
    made.__cause__, made.__context__ = shown["__cause__"], shown["__context__"]
    made.__suppress_context__ = error.__suppress_context__
    for note in notes:
        made.add_note(note)
    return made


def _is_whole(error: BaseException, text: str, notes: list[str]) -> bool:
    try:
        return str(error) == text and list(getattr(error, "__notes__", ())) == notes
    except BaseException:
        return False
