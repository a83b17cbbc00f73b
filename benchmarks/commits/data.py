"""The input of `commits`, and what must come out of so much of it as was committed.

*Guarantees*: the same seed gives the same records, in each partition.
*Assumes*: outputs of a key are in the partition of its inputs, as Kafka's partitioner places them.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct

from benchmarks.paced import keys_of

VALUE = b"x" * 100
LONG = Struct(">q")

Output = tuple[int, bytes, bytes]
"""Partition, key, value."""


class Input:
    """`records` of `keys` customers, equally many of both in each of the partitions, which differ by less than one."""

    def __init__(self, partitions: int, records: int, keys: int, seed: int) -> None:
        self.each = records // partitions
        """How many records a partition has."""
        self._names = keys_of(partitions, max(1, keys // partitions))
        self._orders = [self._order(seed, partition) for partition in range(partitions)]

    def _order(self, seed: int, partition: int) -> array[int]:
        """Which of the partition's keys each of its records has."""
        draw, keys = random.Random(seed * 1000 + partition).random, len(self._names[partition])
        return array("I", (int(draw() * keys) for _ in range(self.each)))

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Partition and key of each record, in turn."""
        for number in range(self.each):
            for partition, order in enumerate(self._orders):
                yield partition, self._names[partition][order[number]]

    def keys(self, partition: int, count: int) -> Iterator[bytes]:
        """Those of the partition's first records, in order."""
        names = self._names[partition]
        return (names[at] for at in self._orders[partition][:count])

    def differences(self, committed: Mapping[int, int], found: Iterable[Output], thin: bool = False) -> list[str]:
        """In words, at most one for each partition: where `found`, in the order of its partitions, isn't the running
        count of each key of the first `committed` records, all of them; `thin`: some of them, the last one among
        them."""
        given: dict[int, list[tuple[bytes, bytes]]] = {partition: [] for partition in range(len(self._names))}
        for partition, key, value in found:
            given[partition].append((key, value))
        check = self._thin if thin else self._full
        said = ((partition, check(partition, committed[partition], outputs)) for partition, outputs in given.items())
        return [f"partition {partition}: {what}" for partition, what in said if what]

    def _full(self, partition: int, committed: int, found: list[tuple[bytes, bytes]]) -> str:
        counts = Counter[bytes]()
        for number, (key, output) in enumerate(zip(self.keys(partition, committed), found, strict=False)):
            counts[key] += 1
            if output != (due := (key, LONG.pack(counts[key]))):
                return f"record {number} is {output!r} where {due!r} was due"
        return "" if len(found) == committed else f"{len(found):,} records where {committed:,} were due"

    def _thin(self, partition: int, committed: int, found: list[tuple[bytes, bytes]]) -> str:
        due, last = Counter(self.keys(partition, committed)), Counter[bytes]()
        for number, (key, value) in enumerate(found):
            before, last[key] = last[key], int.from_bytes(value)
            if not before < last[key] <= due[key]:
                return f"record {number} has {last[key]} for {key!r} after {before}, and {due[key]} is the last"
        behind = sorted(key for key in due if last[key] != due[key])
        return f"{len(behind):,} keys end too early, {behind[0]!r} after {last[behind[0]]}" if behind else ""
