"""`BatchIsolation`: settings of a producer that finds out which output of a batch Kafka refuses.

A broker that refuses a record refuses its whole batch, and doesn't always name the record. So the producer sends small
batches, and asks for a report of each output. If the broker names no record, all outputs of the refused batch are
suspects. When the suspects are resent, each one is sent in a batch of its own.

*Guarantees*: `BatchIsolation` is immutable.
*Assumes*: when an output is produced a second time, it has the same topic, key and value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from milestones.common.records import Output

Suspect = tuple[str, bytes | None, bytes | None]
"""Topic, key and value of an output. A delivery report contains nothing else of the output, except the partition, which
the client may have chosen."""


@dataclass(frozen=True)
class BatchIsolation:
    """`most`: the largest number of records in a batch. `alone`: the outputs that are each sent in a batch of their
    own."""

    most: int = 1
    alone: frozenset[Suspect] = frozenset()

    def is_alone(self, output: Output) -> bool:
        return self.most == 1 or suspect(output) in self.alone


def suspect(output: Output) -> Suspect:
    return output.topic, output.key, output.value


def suspects(outputs: Iterable[Output]) -> frozenset[Suspect]:
    return frozenset(map(suspect, outputs))
