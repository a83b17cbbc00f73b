"""Kafka's default partitioner."""

from __future__ import annotations

import pytest

from milestones.common import partitioner
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


def test_a_process_remembers_the_hashes_of_a_bounded_number_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = partitioner._Hashes()
    monkeypatch.setattr(partitioner, "REMEMBERED", 10)
    for number in range(35):
        key = b"key-%d" % number
        assert hashes[key] == hashes[key] == partitioner.murmur2(key) & 0x7FFFFFFF
        assert len(hashes) <= 10
