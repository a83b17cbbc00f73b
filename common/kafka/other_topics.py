"""Internal topics under the application's name that its topology doesn't know.

*Guarantees*: pure.
*Assumes*: names as Kafka Streams gives them. Those of another application, whose id begins with this one's, can't be
told apart from this one's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

ENDINGS: Final = ("-changelog", "-repartition", "-subscription-registration-topic", "-subscription-response-topic")
"""Internal topics are called `<application.id>-<name><ending>`, in Kafka Streams too."""
SHOWN: Final = 5


def others_of(application_id: str, topics: Iterable[str], own: Collection[str]) -> list[str]:
    """Those of `topics` that look like internal ones of the application, and aren't among its `own`."""
    beginning = f"{application_id}-"
    return sorted(one for one in topics if one.startswith(beginning) and one.endswith(ENDINGS) and one not in own)


def begins_empty(made: Collection[str], others: Collection[str]) -> str:
    """What the log says when topics were made beside others that the topology doesn't read."""
    return (
        f"made {_listed(made)}, which begin empty, while no operator reads {_listed(others)}: if they are this "
        "application's own, its topology isn't the one that wrote them, and their state isn't found. Stores and "
        "repartition topics are found by name, and the names of unnamed ones are numbered in the order of the program: "
        "compare `describe()` of both. Stop this application before it commits much, or give the stores their old names"
    )


def _listed(topics: Collection[str]) -> str:
    names = sorted(topics)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
