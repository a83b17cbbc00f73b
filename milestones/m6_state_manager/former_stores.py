"""Stores that the topology doesn't have any more: they are kept for a way back, then their room is given back.

*Guarantees*: what no changelog has is kept. A store that comes back after it was removed begins empty.
*Assumes*: no store is opened meanwhile. Before a store is opened whose column family isn't there, its offsets are taken
out of the tasks' rows (`SubtopologyEngine.forget_offsets`): here they stay, as the rows are their holders'.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine


def former_stores(database: SubtopologyEngine) -> list[str]:
    """The stores that can go: each task that has one knows its changelog's offset. None before a task was opened, as
    it isn't known then what the topology has."""
    if database.agreed is None:
        return []
    present, rows = {spec.name for spec in database.agreed}, list(database.rows.values())
    former = [store for store in database.stores() if store not in present]
    return [store for store in former if all(store in row.offsets for row in rows if store in row.births)]


def remove_former(database: SubtopologyEngine, store: str) -> None:
    """Remove a former store, and what the manifest says of it. `StateBusyError`, `StateError`."""
    database.remove_family(store)
    if database.manifest is not None:
        stores = {name: known for name, known in database.manifest.stores.items() if name != store}
        database.manifest = replace(database.manifest, stores=stores)
        database.manifest.write(database.path)
