"""`ReadOnlyStore`: a store of a source topic, as all nodes see it but the one that writes it.

*Guarantees*: what another node writes is an error at once. It would be in no changelog: a restoration would lose it.
*Assumes*: the names of methods that write are those of `WRITES`.
"""

from __future__ import annotations

from typing import Any, Final

from milestones.common.errors import TopologyError

WRITES: Final = frozenset({
    "delete", "delete_raw", "put", "put_all", "put_encoded", "put_if_absent", "put_raw", "put_window", "remove",
})  # fmt: skip
"""The methods of stores that write."""


class ReadOnlyStore:
    """`store` without its methods that write. `node`: the one that has it; `writer`: the one that writes it."""

    def __init__(self, store: Any, node: str, writer: str, topic: str) -> None:
        self._store, self._node, self._writer, self._topic = store, node, writer, topic

    def __getattr__(self, name: str) -> Any:
        if name in WRITES:
            raise TopologyError(
                f"{self._node} can't write to the store {self._store.name}: its rows are those of the topic "
                f"{self._topic}, which only {self._writer} puts into it. Write to the topic, or to a store of its own"
            )
        return getattr(self._store, name)
