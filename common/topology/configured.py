"""Applies a config to a topology.

*Guarantees*: the same topology and config lead to the same sub-topologies.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from milestones.common.errors import TopologyError
from milestones.common.state.spec import HEADERS_FORMAT
from milestones.common.state.stores.kinds import with_headers
from milestones.common.topology.nodes import SubTopology
from milestones.common.topology.operators.stream_joins import OuterSide
from milestones.common.topology.program import Operator
from milestones.common.topology.topology import Topology
from milestones.common.topology.wrapping import wrapped

_GENERATED: Final = re.compile(r"(?:KSTREAM|KTABLE|STATE-STORE)-(?:[A-Z]+-)*\d{10}(?!\d)")


class TopologySettings(Protocol):
    """The settings of a `StreamsConfig` that shape a topology."""

    @property
    def application_id(self) -> str: ...

    @property
    def topology_optimization(self) -> frozenset[str] | None: ...

    @property
    def default_key_serde(self) -> Any: ...

    @property
    def default_value_serde(self) -> Any: ...

    @property
    def processor_wrapper(self) -> Any: ...

    @property
    def ensure_explicit_internal_resource_naming(self) -> bool: ...

    @property
    def dsl_store_format(self) -> str: ...

    @property
    def stream_join_unmatched(self) -> str: ...


class Configured(NamedTuple):
    """A topology as it runs. `everywhere`: the global stores and their nodes, which every instance runs."""

    subtopologies: tuple[SubTopology, ...]
    everywhere: SubTopology | None


def configured(topology: Topology, config: TopologySettings) -> Configured:
    """Apply the config's application id, serdes, optimisations, and settings of joins and stores to the topology.
    Raises `TopologyError` if it can't run, or if it has generated names although the config forbids them."""
    made = topology.optimized(config.topology_optimization)
    made = made.rewritten(lambda node: (_sending_unmatched(node.operator, config.stream_join_unmatched), ()))
    if (wrapper := config.processor_wrapper) is not None:
        made = made.rewritten(lambda node: wrapped(node, wrapper))
    defaults = {"default_key_serde": config.default_key_serde, "default_value_serde": config.default_value_serde}
    subtopologies = made.resolve(config.application_id, **defaults)
    if config.ensure_explicit_internal_resource_naming:
        check_names(subtopologies)
    everywhere = made.resolve_global(**defaults)
    if config.dsl_store_format == HEADERS_FORMAT:
        return Configured(tuple(map(_keeping_headers, subtopologies)), everywhere and _keeping_headers(everywhere))
    return Configured(subtopologies, everywhere)


def _sending_unmatched(operator: Operator, when: str) -> Operator:
    return replace(operator, unmatched=when) if isinstance(operator, OuterSide) else operator


def _keeping_headers(sub: SubTopology) -> SubTopology:
    return replace(sub, stores=tuple(map(with_headers, sub.stores)))


def check_names(subtopologies: Iterable[SubTopology]) -> None:
    """Raise `TopologyError` if stores or internal topics have generated names (KIP-1111). Such a name contains a
    number, which changes as soon as an operator is added before it. Then the data under the old name would be left
    behind."""
    found: dict[str, list[str]] = {"stores": [], "changelog topics": [], "repartition topics": []}
    for sub in subtopologies:
        changelogs = [sub.changelogs[spec.name] for spec in sub.stores if spec.name in sub.changelogs and spec.logged]
        found["stores"] += [spec.name for spec in sub.stores]
        found["changelog topics"] += changelogs
        found["repartition topics"] += sub.repartition_topics
    generated = {what: sorted({name for name in names if _GENERATED.search(name)}) for what, names in found.items()}
    if any(generated.values()):
        told = "; ".join(f"{what}: {', '.join(names)}" for what, names in generated.items() if names)
        raise TopologyError(
            f"ensure_explicit_internal_resource_naming is set, and these have generated names: {told}. Name stores by "
            "store=..., repartition topics by name=... of group_by, group_by_key, repartition or the join"
        )
