"""`TableState`: what is known of a table while the program is being written.

*Guarantees*: a fact that has become true stays true.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from milestones.common.state.spec import StoreSpec
from milestones.common.topology.operators.getters import Getter, StoreGetter


class TableState:
    """The facts about a table while the program is being written: the table has a store, it sends old values, its rows
    are looked up. Each fact can become true, and then stays true.

    `spec`: the store that the table has or would have. `parent`: the table whose updates this table maps. `parent` is
    None for the first table of a chain. `named`: the user named the store. `rows`: a function that makes the getter of
    this table's rows from the getter of the parent's rows. `chosen`: the user chose how the table would be kept.
    """

    def __init__(
        self,
        spec: StoreSpec,
        has_store: bool,
        parent: TableState | None = None,
        named: bool | None = None,
        rows: Callable[[Getter], Getter] | None = None,
        chosen: bool = False,
    ) -> None:
        self._spec, self._has_store, self._parent, self._rows = spec, has_store, parent, rows
        self._chosen = chosen
        self._looked_up = False
        self.named: bool = has_store if named is None else named
        self.send_old_values: bool = False

    @property
    def name(self) -> str:
        """The name of the store that the table has or would have."""
        return self._spec.name

    @property
    def store(self) -> StoreSpec | None:
        """The store's spec. Each call returns the same object, as several nodes may share the store.

        `results_wait` is set in two cases. If old values are sent, a result depends on the row before it: a record that
        is processed once more must not find its own row. If an operator looks up rows, its results depend on them: a
        record that is processed once more must not find a later row, or a deletion.
        """
        if (self.send_old_values or self._looked_up) and not self._spec.results_wait:
            self._spec = replace(self._spec, results_wait=True)
        return self._spec if self._has_store else None

    @property
    def store_name(self) -> str | None:
        return self._spec.name if self._has_store else None

    @property
    def versioned(self) -> bool:
        """True if the table is versioned: in its own store, or, if it has no store, in its parent's."""
        if self._has_store:
            return self._spec.kind == "versioned"
        return not self._chosen and self._parent is not None and self._parent.versioned

    @property
    def history_ms(self) -> int | None:
        """The time for which the table's old rows are kept, in ms. None if the table isn't versioned."""
        if self._has_store:
            return self._spec.retention_ms if self._spec.kind == "versioned" else None
        return None if self._parent is None else self._parent.history_ms

    def want_old_values(self, force: bool) -> bool:
        """Make the table send old values, if that is possible. Returns True if it is. `force`: if no table of the chain
        has a store, the first one gets a store, which makes it possible."""
        if self._has_store:
            self.send_old_values = True
        elif self._parent is not None:
            self.send_old_values = self._parent.want_old_values(force) or self.send_old_values
        elif force:
            self._has_store = self.send_old_values = True
        return self.send_old_values

    def getter(self) -> Getter:
        """Return the getter that reads the table's rows. If no table of the chain has a store, the first one gets one.
        """
        if self._has_store or self._parent is None or self._rows is None:
            self._has_store = self._looked_up = True
            return StoreGetter(self._spec.name, self._spec.kind == "versioned")
        return self._rows(self._parent.getter())
