"""`StoreSpec`: a topology's description of a state store.

*Guarantees*: immutable; equal specs open equal stores.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from milestones.common.errors import TopologyError

StoreKind = Literal["key-value", "timestamped-key-value"]


@dataclass(frozen=True)
class StoreSpec:
    """One state store.

    `key_serde`, `value_serde`: None means the application's default. `logged` False: no changelog topic.
    Such a store stays behind when its task moves, and a crash may cost it its last writes (docs/compatibility.md).
    `changelog_config` adds to or overrides the topic settings of the changelog.
    `cached`: emits at the flush when `statestore_cache_max_bytes` is above 0.
    `source_topic`: the source topic that serves as changelog (nothing is written to it), else None.
    """

    name: str
    kind: StoreKind = "key-value"
    persistent: bool = True
    logged: bool = True
    cached: bool = False
    key_serde: Any = None
    value_serde: Any = None
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    source_topic: str | None = None

    @property
    def bare(self) -> StoreSpec:
        """The spec without serdes: what a process that reads only bytes is given."""
        return replace(self, key_serde=None, value_serde=None)

    def __post_init__(self) -> None:
        if self.kind not in get_args(StoreKind):
            kinds = " and ".join(map(repr, get_args(StoreKind)))
            raise TopologyError(f"store {self.name}: there is no kind {self.kind!r}; there are {kinds}")
