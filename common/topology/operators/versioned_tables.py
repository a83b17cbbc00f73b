"""How operators treat updates of versioned tables that aren't the latest of their key (KIP-889, KIP-914).

| operator or store | what it does with such an update |
|---|---|
| the table's store | keeps it as an old version, or refuses it when it is older than the history |
| `filter`, `map_values`, without a store | pass it on, still marked as not the latest |
| `group_by`, joins with tables, also by foreign key | drop it |
| all others | treat it as any update |

*Guarantees*: an operator below a table that isn't versioned is bound as if there were no versioned tables.
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
    """The methods of a versioned store that operators call. `last_put`: the time until which the last version that was
    put is valid."""

    last_put: int

    def get_as_of(self, key: Any, time: int) -> tuple[Any, int] | None:
        """Return (value, timestamp) of `key` that was valid at `time`, None if there was none."""
        ...


def forwarding_versions(context: OperatorContext, store: VersionedTable, send_old_values: bool) -> Process:
    """Return the function to which an operator passes each update that it has just put into `store`."""
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
    """An operator without a store. If an update isn't the latest, it marks the forwarded update so, too."""

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
    """An operator that gets only the latest updates. `counted`: all others are counted as dropped records."""

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
    """Wrap an operator in `Carrying` if its table is `versioned` and its result isn't `kept` in a store."""
    return Carrying(operator) if versioned and not kept else operator


def latest_only(operator: Operator, versioned: bool, *, counted: bool = True) -> Operator:
    """Wrap an operator in `LatestOnly` if its table is `versioned`."""
    return LatestOnly(operator, counted) if versioned else operator
