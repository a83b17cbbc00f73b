"""The count's input, and what must come out of it.

*Guarantees*: the same seed gives the same records; a longer input begins with the shorter one's.
*Assumes*: the amounts' sums fit a Java `long`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import orjson

VALUE_BYTES = 100
MOST_KEYS = 10**6
MOST_AMOUNT = 1000


@dataclass(frozen=True)
class Total:
    """A row of the result. In JSON: `{"count":2,"sum":57}`."""

    count: int
    sum: int

    @classmethod
    def of(cls, data: bytes) -> Total:
        """The total that these bytes of JSON say."""
        fields = orjson.loads(data)
        return cls(fields["count"], fields["sum"])


@dataclass(frozen=True)
class Data:
    """`records` sales of `keys` customers."""

    records: int
    keys: int
    seed: int

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Key and amount of each record."""
        rng = random.Random(self.seed)
        for _ in range(self.records):
            yield b"customer-%06d" % rng.randrange(self.keys), rng.randrange(1, MOST_AMOUNT)

    def values(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each record: `VALUE_BYTES` of JSON."""
        for number, (key, amount) in enumerate(self):
            head = b'{"id":%d,"amount":%d,"text":"' % (number, amount)
            yield key, head.ljust(VALUE_BYTES - 2, b"x") + b'"}'

    def totals(self) -> dict[bytes, Total]:
        """What must be the last total of each key."""
        counts: dict[bytes, int] = {}
        sums: dict[bytes, int] = {}
        for key, amount in self:
            counts[key] = counts.get(key, 0) + 1
            sums[key] = sums.get(key, 0) + amount
        return {key: Total(count, sums[key]) for key, count in counts.items()}


def differences(expected: Mapping[bytes, Total], found: Mapping[bytes, Total]) -> list[str]:
    """In words, key by key, at most five: where `found` isn't what is expected."""
    keys: Iterable[bytes] = sorted(expected.keys() | found.keys())
    wrong = [key for key in keys if expected.get(key) != found.get(key)]
    said = [f"{key!r}: {found.get(key)}, expected {expected.get(key)}" for key in wrong[:5]]
    return said if len(wrong) <= 5 else [*said, f"and {len(wrong) - 5} more"]
