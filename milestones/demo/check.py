"""Checks the demo's result: compares the topics in Kafka with a simple count of the text.

*Guarantees*: the functions change nothing. A check that holds has compared everything that its text names.
*Assumes*: the topics were read to their ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import Any

from milestones import Serde
from milestones.demo.counting import PlainCount
from milestones.serdes import JSON, LONG, STRING

_SHOWN = 3


@dataclass(frozen=True)
class Check:
    """One claim that must hold. `wrong`: a text about the differences, empty if the claim holds."""

    claim: str
    wrong: str = ""

    @property
    def holds(self) -> bool:
        return not self.wrong


@dataclass(frozen=True)
class DemoResult:
    """The results that were read from Kafka. Each table has the last value of each key of a topic, as bytes. `outputs`:
    the number of records in the topic of word counts."""

    word_counts: Mapping[bytes, bytes]
    letters: Mapping[bytes, bytes]
    counts_changelog: Mapping[bytes, bytes]
    letters_changelog: Mapping[bytes, bytes]
    outputs: int


def decoded(table: Mapping[bytes, bytes], value: Serde[Any]) -> dict[str, Any]:
    """Returns the table of a topic with decoded keys and values."""
    read_key, read_value = STRING.deserializer(""), value.deserializer("")
    return {read_key(key): read_value(data) for key, data in table.items()}


def most_frequent(counts: Mapping[str, int], number: int) -> list[tuple[str, int]]:
    return nlargest(number, counts.items(), key=itemgetter(1))


def checks(outcome: DemoResult, plain: PlainCount) -> list[Check]:
    """Returns all checks, in the order in which they are printed."""
    emitted = "" if outcome.outputs == plain.total else f"{outcome.outputs:,} were emitted"
    return [
        Check(
            f"word-counts: the last counts of {len(plain.words):,} words equal a plain count of the text",
            difference(decoded(outcome.word_counts, LONG), plain.words),
        ),
        Check(f"word-counts: {plain.total:,} words gave {plain.total:,} outputs, none lost, none twice", emitted),
        Check(
            f"letters: words, characters and longest word of {len(plain.letters)} letters equal a plain count",
            difference(decoded(outcome.letters, JSON), plain.letters),
        ),
        Check(
            "the changelog of the word counts, folded, says the same",
            difference(decoded(outcome.counts_changelog, LONG), plain.words),
        ),
        Check(
            "the changelog of the letters, folded, says the same",
            difference(decoded(outcome.letters_changelog, JSON), plain.letters),
        ),
    ]


def difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Returns a text about the differences between `found` and `expected`, with a few examples. The text is empty if
    they are equal."""
    different = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    if not different:
        return ""
    examples = [
        f"{key!r} is {found.get(key, 'missing')}, should be {expected.get(key, 'missing')}"
        for key in different[:_SHOWN]
    ]
    return f"{len(different):,} differ: {'; '.join(examples)}"
