"""The tags of workers, which `milestones run --workers` adds to the tags that a user has given.

*Guarantees*: a member without workers has none of them.
*Assumes*: an older leader takes them for ordinary tags, and doesn't use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COMMAND_TAG: Final = "milestones.command"
"""The tag that only the workers of one command share: they run on one machine, and end together."""
WORKER_TAG: Final = "milestones.worker"
"""The tag with a worker's number, and the number of workers: `2/4`."""

OWN: Final = frozenset({COMMAND_TAG, WORKER_TAG})


def given_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that a user has given."""
    return {name: value for name, value in tags.items() if name not in OWN}
