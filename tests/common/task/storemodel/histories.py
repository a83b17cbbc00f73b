"""`History`: what a versioned store must give, said by dicts. Nothing is ever forgotten.

*Guarantees*: uses nothing of the stores but the tuples that they give.
*Assumes*: times are 0 or later.
"""

from __future__ import annotations

import copy
from collections.abc import KeysView
from typing import Generic, TypeVar

from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.versioned_store import VersionedValue
from milestones.common.state.stores.versions import NOT_PUT, STILL

V = TypeVar("V")


class History(Generic[V]):
    """Each version of each key that was put, None for a deletion."""

    def __init__(self, history_ms: int) -> None:
        self._history_ms = history_ms
        self._versions: dict[str, dict[int, V | None]] = {}
        self.observed = -1

    def copy(self) -> History[V]:
        return copy.deepcopy(self)

    def all_keys(self) -> KeysView[str]:
        """All keys that were ever put."""
        return self._versions.keys()

    def too_old(self, time: int) -> bool:
        """Whether a time is older than the history."""
        return time < self.observed - self._history_ms

    def put(self, key: str, value: V | None, time: int) -> int:
        if self.too_old(time):
            return NOT_PUT
        self.observed = max(self.observed, time)
        versions = self._versions.setdefault(key, {})
        later = [each for each in versions if each > time]
        if value is None and not later and versions.get(time) is not None:
            # The deletion of the latest version at its very time leaves no trace of its own, but where a former version
            # ends there.
            former = [each for each in versions if each < time]
            if not former or versions[max(former)] is None:
                del versions[time]
                return STILL
        versions[time] = value
        return min(later, default=STILL)

    def at(self, key: str, time: int | None) -> ValueAndTimestamp[V] | None:
        """The version that holds at a time, by default the latest."""
        versions = self._versions.get(key, {})
        if time is not None and self.too_old(time) and max(versions, default=0) > time:
            return None
        since = max((each for each in versions if time is None or each <= time), default=None)
        value = None if since is None else versions[since]
        return None if value is None or since is None else ValueAndTimestamp(value, since)

    def between(self, key: str, first: int, last: int) -> list[VersionedValue[V]]:
        """Within the history."""
        versions = sorted(self._versions.get(key, {}).items())
        untils = [*(since for since, _ in versions[1:]), None][: len(versions)]
        return [
            VersionedValue(value, since, until)
            for (since, value), until in zip(versions, untils, strict=True)
            if value is not None and since <= last and (until is None or until > first)
        ]
