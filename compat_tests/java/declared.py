"""Where we differ from Kafka Streams on purpose, as far as the bench can see it.

*Guarantees*: docs/architecture.md has a row of each in its table of differences; a test looks.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EVERY = ""
"""In place of a topology: the inputs of the bench don't lead there, or its comparison doesn't look."""


@dataclass(frozen=True)
class Declared:
    """`row`: how the row in docs/architecture.md begins. `reason`: why the outcomes of this topology differ."""

    topology: str
    row: str
    reason: str


DECLARED: tuple[Declared, ...] = (
    Declared(EVERY, "a timestamp of 0", "librdkafka takes 0 for now; times begin at 1"),
    Declared(EVERY, "behind a cache, a row that came and went", "the last deletion of a changelog's key is no row"),
    Declared(EVERY, "`record_metadata()` in a punctuation", "both are told as none"),
    Declared(EVERY, "punctuations of one clock that are due at the same time", "no two of a clock are scheduled"),
    Declared(EVERY, "the name of a header with a NUL", "librdkafka's Python client cuts it; names have none"),
)


def declared_for(topology: str, table: Iterable[Declared] = DECLARED) -> Declared | None:
    """The difference declared for a topology."""
    return next((each for each in table if each.topology == topology), None)
