"""`BatchIsolation`: how outputs are sent so that it is known which of them Kafka refuses.

A broker that refuses a record refuses its whole batch, and doesn't always name the record. So this producer sends small
batches, and reports each output. If a batch is refused and the broker names no record, there are few suspects. When
they are resent, each of them is a batch of its own.

*Guarantees*: a value.
*Assumes*: outputs that are made again have the same topic, key and value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from milestones.common.records import Emitted

Suspect = tuple[str, bytes | None, bytes | None]
"""Topic, key and value of an output. A delivery report has no more of it, and the client has chosen the partition."""


@dataclass(frozen=True)
class BatchIsolation:
    """`most`: records in a batch; `alone`: outputs of which each is a batch of its own."""

    most: int = 1
    alone: frozenset[Suspect] = frozenset()

    def is_alone(self, output: Emitted) -> bool:
        return self.most == 1 or suspect(output) in self.alone


def suspect(output: Emitted) -> Suspect:
    return output[0], output[2], output[3]


def suspects(outputs: Iterable[Emitted]) -> frozenset[Suspect]:
    return frozenset(map(suspect, outputs))
