"""Names of nodes, stores and internal topics, numbered as Kafka Streams numbers them.

*Guarantees*: the same calls of the DSL in the same order lead to the names that Kafka Streams generates. For this an
operator uses up a number even if the user has named it.
*Assumes*: one thread builds a topology.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

from milestones.common.errors import TopologyError

SOURCE = "KSTREAM-SOURCE-"
SINK = "KSTREAM-SINK-"
FILTER = "KSTREAM-FILTER-"
STATE_STORE = "STATE-STORE-"
REPARTITION_SUFFIX = "-repartition"

_MAX_LENGTH = 249
_LEGAL = re.compile(r"[A-Za-z0-9._-]+")
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


def check_name(name: str, what: str) -> str:
    """Return `name` if it may be part of a topic's name. Raises `TopologyError` if not. `what`: the named thing, for
    the error text."""
    if not isinstance(name, str):
        raise TopologyError(f"{what} must be named by a str, not {name!r}")
    if not name or name in (".", ".."):
        raise TopologyError(f"{what} can't be named {name!r}: use letters, digits, '.', '_' and '-'")
    if len(name) > _MAX_LENGTH:
        raise TopologyError(f"the name of {what} is longer than {_MAX_LENGTH} characters: {name!r}")
    if not _LEGAL.fullmatch(name):
        raise TopologyError(f"{what} can't be named {name!r}: only ASCII letters, digits, '.', '_' and '-' are legal")
    return name


def check_keywords(given: Iterable[str], known: Collection[str]) -> None:
    """Raise `TypeError` for a keyword argument that an operator doesn't have."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"this operator has no keyword argument {name!r}; {hint}")


def is_generated(name: str) -> bool:
    """True if a stream operator has generated `name`."""
    return _GENERATED.fullmatch(name) is not None


def repartition_topic(prefix: str) -> str:
    """Return the name of the repartition topic for `prefix`, without the application id."""
    return prefix if prefix.endswith(REPARTITION_SUFFIX) else prefix + REPARTITION_SUFFIX


def changelog_topic(application_id: str, store: str) -> str:
    """Return the full name of the changelog topic of `store`."""
    return f"{application_id}-{store}-changelog"


class Names:
    """Generates names with a counter. Each builder has one."""

    def __init__(self) -> None:
        self._next = 0

    def copy(self) -> Names:
        """Return another counter, which begins with the next number of this one."""
        copy = Names()
        copy._next = self._next
        return copy

    def processor(self, prefix: str) -> str:
        """Generate a node name."""
        number, self._next = self._next, self._next + 1
        return f"{prefix}{number:010d}"

    def store(self, prefix: str) -> str:
        """Generate a store name."""
        return self.processor(prefix + STATE_STORE)

    def given(self, name: str | None, prefix: str, suffix: str = "") -> str:
        """Return `name` + `suffix`, or generate a node name if `name` is None. In both cases a number is used up."""
        generated = self.processor(prefix)
        return generated if name is None else check_name(name + suffix, "an operator")
