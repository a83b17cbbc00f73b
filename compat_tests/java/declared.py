"""Where we differ from Kafka Streams on purpose, as far as the bench can see it.

*Guarantees*: docs/architecture.md has a row of each in its table of differences; a test looks.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LEFT_OUT = ""
"""In place of a topology: no input of the bench leads there, whatever the topology."""


@dataclass(frozen=True)
class Declared:
    """`row`: how the row in docs/architecture.md begins. `reason`: why the outcomes of this topology differ."""

    topology: str
    row: str
    reason: str


DECLARED: tuple[Declared, ...] = (
    Declared(LEFT_OUT, "a timestamp of 0", "librdkafka takes 0 for now; times begin at 1"),
    Declared(LEFT_OUT, "the name of a header with a NUL", "librdkafka's Python client cuts it; names have none"),
)


def declared_for(topology: str, table: Iterable[Declared] = DECLARED) -> Declared | None:
    """The difference declared for a topology."""
    return next((each for each in table if each.topology == topology), None)
