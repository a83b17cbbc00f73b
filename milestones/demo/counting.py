"""Contains the functions that the demo's topology runs, and a simple count of the same text to compare with.

*Guarantees*: the functions change nothing. The topology and the simple count share only the function `words`.
*Assumes*: the text is English.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)*")


class Letter(TypedDict):
    """The sums for all words that begin with one letter. `longest`: the longest word; of equally long words, the last
    one in the alphabet."""

    words: int
    characters: int
    longest: str


def words(line: str) -> list[str]:
    """Returns the words of a line, in lower case and in their order."""
    return _WORD.findall(line.lower())


def no_words() -> Letter:
    """Returns the sums of a letter before its first word."""
    return {"words": 0, "characters": 0, "longest": ""}


def add_word(_letter: str, word: str, sum_: Letter) -> Letter:
    """Returns the sums of a letter after one more word."""
    longest = sum_["longest"]
    if (len(word), word) > (len(longest), longest):
        longest = word
    return {"words": sum_["words"] + 1, "characters": sum_["characters"] + len(word), "longest": longest}


@dataclass(frozen=True)
class PlainCount:
    """The expected result. `words`: the count of each word. `letters`: the sums of each first letter. `total`: the
    number of words in the text."""

    words: dict[str, int]
    letters: dict[str, Letter]
    total: int


def plain_count(lines: Iterable[str]) -> PlainCount:
    """Count the words of the text without Kafka."""
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
