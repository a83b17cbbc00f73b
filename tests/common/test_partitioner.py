"""Kafka's default partitioner."""

from __future__ import annotations

import pytest

from milestones.common.partitioner import murmur2, partition_of

# From the unit tests of Kafka's own Utils.murmur2, as signed numbers.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_keys_are_placed_as_kafka_places_them(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] % (1 << 32)
    assert partition_of(key, 7) == (KNOWN[key] & 0x7FFFFFFF) % 7
