"""Which topics a source's pattern means: one rule for the plan, the watch on source topics and the test driver.

*Guarantees*: pure. A pattern means whole names, and none of Kafka's own topics, as in a consumer's subscription.
*Assumes*: patterns are valid regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

KAFKAS_OWN = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
"""The topics in which Kafka keeps its own state."""


def matches(pattern: str, topic: str) -> bool:
    return topic not in KAFKAS_OWN and re.fullmatch(pattern, topic) is not None


def matching(patterns: Iterable[str], topics: Iterable[str]) -> set[str]:
    """The topics that at least one of the patterns means."""
    patterns = tuple(patterns)
    return {topic for topic in topics if any(matches(pattern, topic) for pattern in patterns)}
