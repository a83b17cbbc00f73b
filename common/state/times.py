"""The names of times in the metadata of committed offsets. If there isn't room for all times, several share an entry.

    ":" + 7 characters          the time of one operator or store; the characters are a hash of its name
    ":" + 7 characters          the lowest of several times; the characters are a hash of their names

Kafka takes 4,096 characters of metadata with an offset. Each entry needs the length of its name and 12 bytes. With
these names about 130 times fit, however long the application's id and transactional ids are. No store of Kafka Streams
has a colon in its name, so that entries of a Java application aren't mistaken for times. The chance that two of 120
times get the same name is 1 in 600 million.

*Guarantees*: only the operators and stores that wrote an entry find it. If their names in the topology change, they
find no entry, and their times begin anew. An entry that several times share is never later than any of them.
*Assumes*: a time only rises, or a value below the real one does no harm.
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
    """Return the name of a time. `of`: the operator or store that the time belongs to, such as a node and its
    stores."""
    return _MARK + urlsafe_b64encode(blake2b(of.encode(), digest_size=6).digest()).decode()[: NAME_BYTES - 1]


def is_time(name: str) -> bool:
    """True if `name` is that of a time, and not of another entry of the metadata."""
    return name.startswith(_MARK)


def observed_time(store: str) -> str:
    """Return the name of the highest time of a store's rows."""
    return time_name(f"store {store} observed")


def gathered(times: Collection[str], most: int) -> dict[str, list[str]]:
    """Divide times among at most `most` entries. Returns the times of each entry, by the entry's name. If there are at
    most `most` times, each has an entry of its own."""
    ordered = sorted(times)
    if len(ordered) <= most:
        return {name: [name] for name in ordered}
    groups = (ordered[first::most] for first in range(most))
    return {time_name(" ".join(group)): group for group in groups}
