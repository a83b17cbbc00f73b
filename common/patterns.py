"""Decides which topics a source's pattern matches. The plan, the watch on source topics and the test driver all use
this rule.

*Guarantees*: as in a consumer's subscription, a pattern must match a topic's whole name, and never matches Kafka's own
topics.
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
    """Returns the topics that at least one of the patterns matches."""
    patterns = tuple(patterns)
    return {topic for topic in topics if any(matches(pattern, topic) for pattern in patterns)}
