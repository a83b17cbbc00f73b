"""Finds internal topics that have the application's name, but that its topology doesn't use.

*Guarantees*: the functions change nothing.
*Assumes*: internal topics are named as in Kafka Streams. If the id of another application begins with this
application's id and a hyphen, the other application's topics are taken for this one's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

ENDINGS: Final = ("-changelog", "-repartition", "-subscription-registration-topic", "-subscription-response-topic")
"""The endings of internal topics. Their names are `<application.id>-<name><ending>`, as in Kafka Streams."""
SHOWN: Final = 5
"""The most topics that a text names."""


def others_of(application_id: str, topics: Iterable[str], own: Collection[str]) -> list[str]:
    """Returns the topics whose names look like internal topics of the application, except those in `own`."""
    beginning = f"{application_id}-"
    return sorted(one for one in topics if one.startswith(beginning) and one.endswith(ENDINGS) and one not in own)


def begins_empty(made: Collection[str], others: Collection[str]) -> str:
    """Returns the warning that topics were created while the application has other topics that no operator reads."""
    return (
        f"made {_listed(made)}, which begin empty, while no operator reads {_listed(others)}: if the latter belong to "
        "this application, another version of its topology wrote them, and this version doesn't find their state. "
        "Stores and repartition topics are found by name. The names of unnamed ones contain a number, in the order of "
        "the program: compare `describe()` of both versions. Stop this application before it commits much, or give the "
        "stores their old names"
    )


def _listed(topics: Collection[str]) -> str:
    names = sorted(topics)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
