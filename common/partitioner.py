"""`partition_of`: computes the partition that Kafka's default partitioner chooses for a key.

*Guarantees*: librdkafka's `murmur2_random` and Kafka's own clients choose the same partition.
*Assumes*: the record has a key. For a record without a key the client chooses a partition at random.
"""

from __future__ import annotations

from typing import Final

_SEED, _M, _R, _MASK = 0x9747B28C, 0x5BD1E995, 24, 0xFFFFFFFF
REMEMBERED: Final = 1 << 17
"""The most keys whose hashes this process remembers. With one more it forgets them all."""


class _Hashes(dict[bytes, int]):
    """The positive hashes of keys. An absent one is computed. Any thread may use it."""

    def __missing__(self, key: bytes) -> int:
        if len(self) >= REMEMBERED:
            self.clear()
        positive = self[key] = murmur2(key) & 0x7FFFFFFF
        return positive


positive_hash: Final = _Hashes().__getitem__
"""Returns the hash of a key, whose remainder by the number of partitions is the key's partition."""


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a record with this key, in a topic with this number of `partitions`."""
    return positive_hash(key) % partitions


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
