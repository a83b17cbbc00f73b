"""How a table is stored: the keyword arguments of Kafka Streams' `Materialized`, as one value.

*Guarantees*: immutable.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from milestones.common.serdes import Serde
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.naming import check_name
from milestones.common.topology.serde_choice import Choice, check_serde


class StoreOptions(TypedDict, total=False):
    """Keyword arguments of operators that keep a table, besides the store's name.

    `logging` False: no changelog topic. `caching` False: every update is sent, whatever the cache's size is.
    `in_memory`: no RocksDB. `changelog_config`: topic settings that override those of the changelog.
    """

    key: Serde[Any] | None
    value: Serde[Any] | None
    logging: bool
    caching: bool
    in_memory: bool
    changelog_config: Mapping[str, str]


@dataclass(frozen=True)
class Materialized:
    """A user's choices for a table. `store` None: the store gets a generated name, or isn't made if it isn't
    needed."""

    store: str | None = None
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    logging: bool = True
    caching: bool = True
    in_memory: bool = False
    changelog_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.store is not None:
            check_name(self.store, "a store")
        check_serde(self.key, "key")
        check_serde(self.value, "value")

    @property
    def given(self) -> bool:
        """Whether the user made any choice: Kafka Streams numbers some operators otherwise then."""
        return self != _DEFAULT

    def spec(self, name: str, key: Choice, value: Choice) -> StoreSpec:
        """The spec of this table's store: timestamped key-value."""
        return StoreSpec(
            name=name,
            kind="timestamped-key-value",
            persistent=not self.in_memory,
            logged=self.logging,
            cached=self.caching,
            key_serde=key,
            value_serde=value,
            changelog_config=dict(self.changelog_config),
        )


_DEFAULT = Materialized()
