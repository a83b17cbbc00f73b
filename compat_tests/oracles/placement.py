"""Which partition a key belongs to, and which one of Kafka's own a group's offsets lie in.

*Guarantees*: nothing of the runtime is in it, which leaves the choice of partitions to librdkafka.
*Assumes*: nothing.
"""

from __future__ import annotations

from milestones.common.partitioner import partition_of

__all__ = ["java_hash", "partition_of"]

_MASK = 0xFFFFFFFF


def java_hash(text: str) -> int:
    """`String.hashCode` of Java, made positive as Kafka does for the partition of a group's offsets."""
    h, data = 0, text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        h = (31 * h + int.from_bytes(data[at : at + 2], "big")) & _MASK
    signed = h - (1 << 32) if h & 0x80000000 else h
    return 0 if signed == -(1 << 31) else abs(signed)
