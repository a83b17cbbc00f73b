"""The state of a table while the program is written: whether it has a store, whether it sends old values.

*Guarantees*: a table that has a store or sends old values keeps doing so.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from milestones.common.state.spec import StoreSpec


class TableState:
    """One table. `spec`: the store that the table has or would have. `parent`: the table whose updates this one maps,
    None for the first of a line. `named`: the user named the store."""

    def __init__(
        self, spec: StoreSpec, has_store: bool, parent: TableState | None = None, named: bool | None = None
    ) -> None:
        self._spec, self._has_store, self._parent = spec, has_store, parent
        self.named = has_store if named is None else named
        self.send_old_values = False

    @property
    def name(self) -> str:
        """The name of the store that the table has or would have."""
        return self._spec.name

    @property
    def store(self) -> StoreSpec | None:
        return self._spec if self._has_store else None

    @property
    def store_name(self) -> str | None:
        return self._spec.name if self._has_store else None

    def want_old_values(self, force: bool) -> bool:
        """Send old values from now on, if that is possible; returns whether. `force`: give the first table of the line
        a store for that."""
        if self._has_store:
            self.send_old_values = True
        elif self._parent is not None:
            self.send_old_values = self._parent.want_old_values(force) or self.send_old_values
        elif force:
            self._has_store = self.send_old_values = True
        return self.send_old_values
