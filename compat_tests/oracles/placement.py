"""Where Kafka's default partitioner puts a key: murmur2, as Java's producer has it.

*Guarantees*: written apart from the runtime and from librdkafka, whose choice it judges.
*Assumes*: nothing.
"""

from __future__ import annotations

_SEED, _M, _R, _MASK = 0x9747B28C, 0x5BD1E995, 24, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, unsigned."""
    h = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> _R)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a record with this key in a topic of so many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def java_hash(text: str) -> int:
    """`String.hashCode` of Java, made positive as Kafka does for the partition of a group's offsets."""
    h = 0
    for unit in _units(text):
        h = (31 * h + unit) & _MASK
    signed = h - (1 << 32) if h & 0x80000000 else h
    return 0 if signed == -(1 << 31) else abs(signed)


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
