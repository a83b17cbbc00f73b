"""Stores whose rows are the records of a topic (KIP-813).

*Guarantees*: a row is the latest record of its key. A value of None deletes the row. Records without a key are dropped.
*Assumes*: the store is a key-value store, timestamped or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.stores_with_headers import ValueTimestampHeaders
from milestones.common.topology.operators.tables import NULL_KEY, TableSource
from milestones.common.topology.program import Operator, OperatorContext, Process


@dataclass(frozen=True)
class KeepValues:
    """Puts each record into a plain key-value store."""

    store: str

    def bind(self, context: OperatorContext) -> Process:
        put, dropped, node = context.store(self.store).put, context.dropped, context.node

        def process(key: Any, value: Any, _timestamp: int) -> None:
            if key is None:
                dropped(node, NULL_KEY)
            else:
                put(key, value)

        return process


@dataclass(frozen=True)
class KeepHeaders:
    """Puts each record with its time and headers into a store that keeps headers."""

    store: str

    def bind(self, context: OperatorContext) -> Process:
        put, record, dropped, node = context.store(self.store).put, context.record, context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                dropped(node, NULL_KEY)
            else:
                put(key, ValueTimestampHeaders(value, timestamp, record.headers or []))

        return process


_KEEPING: Mapping[str, Callable[[str], Operator]] = MappingProxyType({
    "key-value": KeepValues,
    "timestamped-key-value": TableSource,
    "timestamped-key-value-with-headers": KeepHeaders,
})  # fmt: skip


def keeping(spec: StoreSpec) -> Operator:
    """Choose the operator that puts the records of the store's topic into the store."""
    if spec.kind not in _KEEPING:
        raise TopologyError(
            f"the store {spec.name} is of the kind {spec.kind!r}: say with a supplier how a record becomes a row; "
            f"without one it is done for {' and '.join(map(repr, _KEEPING))}"
        )
    return _KEEPING[spec.kind](spec.name)
