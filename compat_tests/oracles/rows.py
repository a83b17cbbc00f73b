"""Records as they lie in Kafka, and the headers by which every output names the input it comes from.

Each input carries the header `origin` (`topic/partition/offset`). Kafka Streams hands the headers of the record in
work on to what it sends, through repartition topics too, so each output has its input's. Where one input gives several
outputs, the application adds `ordinal`: 0, 1, ...

*Guarantees*: immutable.
*Assumes*: nothing else uses these header names.
"""

from __future__ import annotations

from typing import NamedTuple

from milestones import TopicPartition as Place
from milestones.testing import KafkaRecord as Row

__all__ = ["ORDINAL", "ORIGIN", "Origin", "Place", "Row", "origin_header", "origin_of"]

ORIGIN, ORDINAL = "origin", "ordinal"


class Origin(NamedTuple):
    """Which input an output comes from, and which of that input's outputs it is."""

    topic: str
    partition: int
    offset: int
    ordinal: int = 0

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}" + (f"#{self.ordinal}" if self.ordinal else "")


def origin_header(topic: str, partition: int, offset: int) -> tuple[str, bytes]:
    """The header that an input is given."""
    return ORIGIN, f"{topic}/{partition}/{offset}".encode()


def origin_of(row: Row) -> Origin | None:
    """What the headers say; None when they say nothing that can be understood. The last `ordinal` counts."""
    found = ordinal = None
    for name, value in row.headers:
        if name == ORIGIN:
            found = value
        elif name == ORDINAL:
            ordinal = value
    try:
        topic, partition, offset = (found or b"").decode().split("/")
        return Origin(topic, int(partition), int(offset), int(ordinal or b"0"))
    except ValueError:
        return None
