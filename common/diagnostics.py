"""The bound of what is said about an error: in texts, in the log, in `status`, in the headers of a dead letter.

An error of user code often holds the record that it is about, and its traceback holds the text once more. What is said
of it is kept short, so that it fits where it goes: the record itself is in its topic.

*Guarantees*: no text is longer than its bound; one that fits is left as it is. Nothing here raises, whatever the
methods of an error do.
*Assumes*: nothing.
"""

from __future__ import annotations

import traceback
from typing import Final

MOST_CHARACTERS: Final = 2_000
"""Of one text. A traceback may have `MOST_LINES` times as many."""
MOST_LINES: Final = 8

_LEFT_OUT: Final = " ... ({:,} characters in all) ... "


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text, or its beginning and its end with their length between them."""
    if len(text) <= most:
        return text
    between = _LEFT_OUT.format(len(text))
    half = max(0, most - len(between)) // 2
    return text[:half] + between + text[len(text) - half :]


def text_of(error: BaseException) -> str:
    """The text of an error, shortened; also of one whose `__str__` raises."""
    try:
        return shortened(str(error))
    except BaseException as second:
        return f"(its text can't be had: __str__ raised {type(second).__name__})"


def line_of(error: BaseException) -> str:
    """The same in one line."""
    return " ".join(text_of(error).split())


def class_of(error: BaseException) -> str:
    """The name of the error's class, or of the error of user code behind it: what a metric may have as a label."""
    return type(error.__cause__ or error).__name__


def traceback_of(error: BaseException) -> str:
    """The traceback of an error and of those that led to it, shortened."""
    lines = traceback.format_exception(brief(error))
    return shortened("".join(map(shortened, lines)), MOST_LINES * MOST_CHARACTERS)


def brief(error: BaseException) -> BaseException:
    """The error to log with its traceback: itself, or, where its text or that of one that led to it is too long, one of
    the same name with the same traceback and a shortened text."""
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
