"""The special case of versioned tables (KIP-889, KIP-914): updates that aren't the latest of their key.

| | what it does with such an update |
|---|---|
| the table's store | keeps it as an old version, or refuses it when it is older than the history |
| `filter`, `map_values`, not kept | pass it on as it is |
| `group_by`, joins with tables, by foreign key too | drop it |
| all others | do as with any update |

*Guarantees*: an operator under a table that isn't versioned is bound as if there were none.
*Assumes*: an operator forwards only while it processes.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Final, Protocol

from milestones.common.records import Change, StaleChange, is_latest
from milestones.common.state.stores.versions import NOT_PUT, STILL
from milestones.common.topology.program import Operator, OperatorContext, Process, TableStore

TOO_OLD: Final = "it is older than the table's history"
NOT_THE_LATEST: Final = "it isn't the latest update of its key"


class VersionedTable(TableStore, Protocol):
    """The calls of operators to a versioned store. `last_put`: until when the last version that was put holds."""

    last_put: int

    def get_as_of(self, key: Any, time: int) -> tuple[Any, int] | None:
        """(value, timestamp) of `key` that held at `time`, None when there was none."""
        ...


def forwarding_versions(context: OperatorContext, store: VersionedTable, send_old_values: bool) -> Process:
    """The target of an operator's updates, each of which it has just put into `store`."""
    forward, dropped, node = context.forward, context.dropped, context.node
    to_children = forward if send_old_values else context.forward_new

    def send(key: Any, value: Any, timestamp: int) -> None:
        until = store.last_put
        if until == STILL:
            to_children(key, value, timestamp)
        elif until == NOT_PUT:
            dropped(node, TOO_OLD)
        else:
            forward(key, StaleChange(value if send_old_values else (value, None)), timestamp)

    return send


@dataclass(frozen=True)
class Carrying:
    """An operator without a store, which forwards updates that aren't the latest as such."""

    operator: Operator

    def bind(self, context: OperatorContext) -> Process:
        stale, forward = False, context.forward

        def as_it_came(key: Any, change: Change, timestamp: int) -> None:
            forward(key, StaleChange(change) if stale else change, timestamp)

        def new_as_it_came(key: Any, value: Any, timestamp: int) -> None:
            as_it_came(key, (value, None), timestamp)

        inside = copy(context)
        inside.forward, inside.forward_new = as_it_came, new_as_it_came
        operate = self.operator.bind(inside)

        def process(key: Any, change: Change, timestamp: int) -> None:
            nonlocal stale
            stale = not is_latest(change)
            operate(key, change, timestamp)

        return process


@dataclass(frozen=True)
class LatestOnly:
    """An operator that is given only the latest updates. `counted`: the others count as dropped records."""

    operator: Operator
    counted: bool

    def bind(self, context: OperatorContext) -> Process:
        operate, dropped, node, counted = self.operator.bind(context), context.dropped, context.node, self.counted

        def process(key: Any, change: Change, timestamp: int) -> None:
            if is_latest(change):
                operate(key, change, timestamp)
            elif counted:
                dropped(node, NOT_THE_LATEST)

        return process


def carrying(operator: Operator, versioned: bool, kept: bool) -> Operator:
    """An operator on a table that is `versioned` or not, and makes one that is `kept` in a store or not."""
    return Carrying(operator) if versioned and not kept else operator


def latest_only(operator: Operator, versioned: bool, *, counted: bool = True) -> Operator:
    """An operator on a table that is `versioned` or not."""
    return LatestOnly(operator, counted) if versioned else operator
