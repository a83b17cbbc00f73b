"""`ReadOnlyStore` protects a store whose changelog is a source topic: only the node that reads the topic may write it.

*Guarantees*: a write by another node raises `TopologyError`. Such a write would be in no changelog, so that a
restoration would lose it.
*Assumes*: `WRITES` has the names of all methods that write.
"""

from __future__ import annotations

from typing import Any, Final

from milestones.common.errors import TopologyError

WRITES: Final = frozenset({
    "delete", "delete_raw", "put", "put_all", "put_encoded", "put_if_absent", "put_raw", "put_window", "remove",
})  # fmt: skip
"""The methods of stores that write."""


class ReadOnlyStore:
    """Passes all calls to `store`, except those that write. `node`: the node that uses this object. `writer`: the node
    that writes the store."""

    def __init__(self, store: Any, node: str, writer: str, topic: str) -> None:
        self._store, self._node, self._writer, self._topic = store, node, writer, topic

    def __getattr__(self, name: str) -> Any:
        if name in WRITES:
            raise TopologyError(
                f"{self._node} can't write to the store {self._store.name}: its rows are those of the topic "
                f"{self._topic}, which only {self._writer} puts into it. Write to the topic, or use another store"
            )
        return getattr(self._store, name)
