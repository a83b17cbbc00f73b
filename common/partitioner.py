"""`partition_of`: computes the partition that Kafka's default partitioner chooses for a key.

*Guarantees*: librdkafka's `murmur2_random` and Kafka's own clients choose the same partition.
*Assumes*: the record has a key. For a record without a key the client chooses a partition at random.
"""

from __future__ import annotations

from functools import lru_cache

_SEED, _M, _R, _MASK = 0x9747B28C, 0x5BD1E995, 24, 0xFFFFFFFF
REMEMBERED = 1 << 17


@lru_cache(REMEMBERED)
def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a record with this key, in a topic with this number of `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Returns the murmur2 hash of `data`, an unsigned number of 32 bits."""
    whole = len(data) & ~3
    h = _SEED ^ len(data)
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> _R) * _M & _MASK)
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
