"""The count's input, and what must come out of it.

*Guarantees*: the same seed gives the same records; a longer input begins with the shorter one's.
*Assumes*: the amounts' sums fit a Java `long`.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import orjson

VALUE_BYTES = 100
MOST_AMOUNT = 1000
SAID = 5
"""Keys that an error names."""

Total = tuple[int, int]
"""Count and sum of a key. In JSON: `{"count":2,"sum":57}`."""
Output = tuple[bytes, bytes, int]
"""Key, value, partition."""


@dataclass(frozen=True)
class Data:
    """`records` sales of `keys` customers. `zipf`: the exponent of Zipf's law by which customers come; 0 is evenly."""

    records: int
    keys: int
    seed: int
    value_bytes: int = VALUE_BYTES
    zipf: float = 0.0

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Key and amount of each record."""
        rng = random.Random(self.seed)
        customer = self._customers(rng)
        for _ in range(self.records):
            yield b"customer-%06d" % customer(), rng.randrange(1, MOST_AMOUNT)

    def _customers(self, rng: random.Random) -> Callable[[], int]:
        if not self.zipf:
            return lambda: rng.randrange(self.keys)
        reached = list(accumulate((rank + 1) ** -self.zipf for rank in range(self.keys)))
        return lambda: bisect(reached, rng.random() * reached[-1], hi=self.keys - 1)

    def values(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each record: `value_bytes` of JSON."""
        for number, (key, amount) in enumerate(self):
            head = b'{"id":%d,"amount":%d,"text":"' % (number, amount)
            yield key, head.ljust(self.value_bytes - 2, b"x") + b'"}'


class Expected:
    """What comes out of a plain count: of each key all running totals, in order."""

    def __init__(self, data: Iterable[tuple[bytes, int]]) -> None:
        """`data`: keys and amounts."""
        self._amounts: dict[bytes, array[int]] = {}
        for key, amount in data:
            self._amounts.setdefault(key, array("H")).append(amount)

    def differences(self, outputs: Iterable[Output], thin: bool = False) -> list[str]:
        """In words, key by key, at most `SAID`: where `outputs`, in the order of their partitions, aren't the running
        totals, each one once and in its key's one partition; `thin`: some of these, the last one among them."""
        reached: dict[bytes, Total] = {}
        places: dict[bytes, int] = {}
        wrong: dict[bytes, str] = {}
        for key, value, partition in outputs:
            found, before = total_of(value), reached.get(key, (0, 0))
            left_out = max(0, found[0] - before[0] - 1) if thin and found else 0
            due = self._next(key, before, left_out)
            if due is None or found != due:
                wrong.setdefault(key, f"{value!r} where {_shown(due)} was due")
            elif places.setdefault(key, partition) != partition:
                wrong.setdefault(key, f"is in the partitions {places[key]} and {partition}")
            reached[key] = due or (0, 0)
        for key, amounts in self._amounts.items():
            if (count := reached.get(key, (0, 0))[0]) < len(amounts):
                wrong.setdefault(key, f"ends after {count} of {len(amounts)}")
        said = [f"{key!r}: {wrong[key]}" for key in sorted(wrong)[:SAID]]
        return said if len(wrong) <= SAID else [*said, f"and {len(wrong) - SAID} more"]

    def _next(self, key: bytes, before: Total, left_out: int) -> Total | None:
        """The total after `before`, and after so many that aren't there."""
        count, total = before
        amounts = self._amounts.get(key, array("H"))
        after = count + left_out + 1
        return (after, total + sum(amounts[count:after])) if after <= len(amounts) else None


def total_of(value: bytes) -> Total | None:
    """Count and sum in an output; None when it isn't one of ours."""
    try:
        fields = orjson.loads(value)
        return fields["count"], fields["sum"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _shown(total: Total | None) -> str:
    return "nothing more" if total is None else f"count {total[0]}, sum {total[1]}"
