"""The kinds of stores: all that differs between one kind and another, in one value per kind.

*Guarantees*: no other part asks a store for its kind; a new kind is one more entry of `KINDS`.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from milestones.common.state.changelog import Layout, PlainLayout, TimestampedLayout
from milestones.common.state.rows import Rows, StoreParts
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.state.stores import KeyValueStore, TimestampedKeyValueStore

CHANGELOG_SETTINGS: Final = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
"""Topic settings of a changelog, as Kafka Streams makes them, but for those of the store's kind."""


def _plain(_: StoreSpec) -> Layout:
    return PlainLayout()


def _timestamped(_: StoreSpec) -> Layout:
    return TimestampedLayout()


def _like_all(_: StoreSpec) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Kind:
    """One kind of store.

    `store`: the class that user code sees. `layout`: makes the local layout of one store. `version`: of the bytes of
    that layout; 1 is Kafka Streams' own. `timed`: whether a local value begins with its time. `topic`: settings of the
    changelog topic that differ from `CHANGELOG_SETTINGS`.
    """

    store: Callable[[StoreParts], Rows]
    layout: Callable[[StoreSpec], Layout]
    version: int = 1
    timed: bool = False
    topic: Callable[[StoreSpec], Mapping[str, str]] = _like_all


KINDS: Final[Mapping[StoreKind, Kind]] = {
    "key-value": Kind(KeyValueStore, _plain),
    "timestamped-key-value": Kind(TimestampedKeyValueStore, _timestamped, timed=True),
}


def kind_of(spec: StoreSpec) -> Kind:
    """The kind of a store."""
    return KINDS[spec.kind]


def layout_of(spec: StoreSpec) -> Layout:
    """A new layout of a store."""
    return KINDS[spec.kind].layout(spec)


def changelog_settings(spec: StoreSpec, of_all: Mapping[str, str]) -> dict[str, str]:
    """The settings of the store's changelog topic. `of_all`: those that the config gives all internal topics."""
    return {**CHANGELOG_SETTINGS, **KINDS[spec.kind].topic(spec), **of_all, **spec.changelog_config}
