"""The names of times in the metadata of committed offsets, and what they do where there are more times than room.

    ":" + 7 characters          one time: that of an operator or of a store; the characters are a hash of what it is of
    ":" + 7 characters          the lowest of several times; a hash of their names

Kafka takes 4,096 characters of metadata with an offset, and each entry costs its name and 12 bytes: with these names
some 130 times fit, whatever the ids of application and transactions are. No store of Kafka Streams has a name with
a colon, so that no entry of Java is taken for one of these. Two of 120 times have one name by a chance of 1 in 600
million.

*Guarantees*: an entry is for the very operators and stores that wrote it: a topology whose names have changed finds
none, and its times begin anew. Where times share an entry, it has a lower bound of each: none is too late by it.
*Assumes*: times only rise, or a lower one than the real one does no harm.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection
from hashlib import blake2b
from typing import Final

_MARK: Final = ":"

NAME_BYTES: Final = 8
"""The length of each name."""


def time_name(of: str) -> str:
    """The name of a time. `of`: what it is of, such as a node and its stores."""
    return _MARK + urlsafe_b64encode(blake2b(of.encode(), digest_size=6).digest()).decode()[: NAME_BYTES - 1]


def is_time(name: str) -> bool:
    """True if an entry of the metadata is that of a time."""
    return name.startswith(_MARK)


def observed_time(store: str) -> str:
    """The name of the highest time of a store's rows."""
    return time_name(f"store {store} observed")


def gathered(times: Collection[str], most: int) -> dict[str, list[str]]:
    """At most `most` entries, each with the times that share it: one time each, where there are no more times."""
    ordered = sorted(times)
    if len(ordered) <= most:
        return {name: [name] for name in ordered}
    groups = (ordered[first::most] for first in range(most))
    return {time_name(" ".join(group)): group for group in groups}
