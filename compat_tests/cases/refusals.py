"""Records that an output topic refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from compat_tests.harness.feed import FIRST_TIMESTAMP

DEAD = "errors_dead_letter_queue_topic_name"
"""The setting of the topic for dead letters."""
MADE_MS = 1_000_000_000_000
"""A time in 2001, which a topic may find too old."""
YEARS_MS = 6 * 365 * 24 * 3_600_000


class Refusal(NamedTuple):
    """What the output topic takes, and what mends that; of a record that it refuses how much longer its value is, and
    its time. All other records of a partition aren't too large for it in one batch."""

    takes: Mapping[str, str]
    mended: Mapping[str, str]
    padding: int = 0
    timestamp: int = FIRST_TIMESTAMP


REFUSALS = {
    "too large": Refusal({"max.message.bytes": "400000"}, {"max.message.bytes": "1000000"}, padding=500_000),
    "too old": Refusal(
        {"message.timestamp.before.max.ms": str(YEARS_MS)}, {"message.timestamp.before.max.ms": str(10 * YEARS_MS)},
        timestamp=MADE_MS,
    ),
}  # fmt: skip
