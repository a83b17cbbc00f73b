"""Former stores: stores that the topology doesn't have any more. Former stores are kept for some time, then removed.

*Guarantees*: a store that no changelog could restore is never removed. A removed store that comes back is empty.
*Assumes*: no store is opened during a removal. The offsets of a removed store stay in the tasks' rows, as only the
thread that has a task may write its row. Before a store without a column family is opened, these offsets are removed
(`SubtopologyEngine.forget_offsets`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine


def former_stores(database: SubtopologyEngine) -> list[str]:
    """Return the former stores that can be removed. For such a store, each task that has it knows the store's changelog
    offset. Returns none before a task was opened, as the stores of the topology aren't known until then."""
    if database.agreed is None:
        return []
    present, rows = {spec.name for spec in database.agreed}, list(database.rows.values())
    former = [store for store in database.stores() if store not in present]
    return [store for store in former if all(store in row.offsets for row in rows if store in row.births)]


def remove_former(database: SubtopologyEngine, store: str) -> None:
    """Remove a former store, and its entry in the manifest. Raises `StateBusyError`, `StateError`."""
    database.remove_family(store)
    if database.manifest is not None:
        stores = {name: known for name, known in database.manifest.stores.items() if name != store}
        database.manifest = replace(database.manifest, stores=stores)
        database.manifest.write(database.path)
