"""The demo's computation, twice: as the functions that the topology runs, and as a plain count of the same text.

*Guarantees*: pure; the plain count shares nothing with the topology's functions but how a line falls into words.
*Assumes*: letters are those of English.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)*")


class Letter(TypedDict):
    """What is known of the words that begin with one letter. Of equally long words, the alphabet's last counts."""

    words: int
    characters: int
    longest: str


def words(line: str) -> list[str]:
    """The words of a line, in lower case, in order."""
    return _WORD.findall(line.lower())


def no_words() -> Letter:
    """A letter before its first word."""
    return {"words": 0, "characters": 0, "longest": ""}


def add_word(_letter: str, word: str, sum_: Letter) -> Letter:
    """A letter with one word more."""
    longest = sum_["longest"]
    if (len(word), word) > (len(longest), longest):
        longest = word
    return {"words": sum_["words"] + 1, "characters": sum_["characters"] + len(word), "longest": longest}


@dataclass(frozen=True)
class PlainCount:
    """What must come out."""

    words: dict[str, int]
    letters: dict[str, Letter]
    total: int


def plain_count(lines: Iterable[str]) -> PlainCount:
    """Count the text in a plain way."""
    counts = Counter(word for line in lines for word in words(line))
    letters: dict[str, Letter] = {}
    for initial in sorted({word[0] for word in counts}):
        mine = {word: count for word, count in counts.items() if word[0] == initial}
        letters[initial] = {
            "words": sum(mine.values()),
            "characters": sum(len(word) * count for word, count in mine.items()),
            "longest": sorted(mine, key=lambda word: (len(word), word))[-1],
        }
    return PlainCount(dict(counts), letters, counts.total())
