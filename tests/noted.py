"""What an error of a random run needs to be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def noted(where: str) -> Iterator[None]:
    """Have an error of the block say `where` it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(where)
        raise
