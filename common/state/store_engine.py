"""A store in an engine of its own: how it is written, emptied and filled.

*Guarantees*: a write is cut into `steps` (a write holds the GIL), the last one together with the changelog offset, so
that replay mends one that breaks off. A store without changelog is written in one step, however large, as nothing would
mend it: `statestore_uncommitted_max_bytes`, which asks for a commit, is all that bounds it.
*Assumes*: one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from milestones.common.state.engine import Batch, Engine, Namespace
from milestones.common.state.spec import StoreSpec
from milestones.common.state.steps import steps


class StoreEngine:
    """A store's engine, and its only namespace, which is called as the store."""

    def __init__(self, spec: StoreSpec, engine: Engine) -> None:
        self.spec, self.engine = spec, engine
        self.namespace = engine.open(spec.name)

    def write(self, batch: Batch, offset: int | None) -> None:
        """Committed entries, up to the changelog offset `offset` (exclusive)."""
        name, apply = self.spec.name, self.engine.apply
        offsets = {} if offset is None else {name: offset}
        if not (batch or offsets):
            return
        *first, last = steps(batch) if self.spec.logged else (batch,)
        for step in first:
            apply({name: step}, {})
        apply({name: last}, offsets)

    def empty(self) -> Namespace:
        """The namespace anew: without entries, at offset None."""
        self.engine.drop(self.spec.name)
        self.namespace = self.engine.open(self.spec.name)
        return self.namespace

    def ingest(self, files: Sequence[Path]) -> Iterator[None]:
        """Sorted table files, in steps."""
        return self.engine.ingest(self.spec.name, files)


Stores = Mapping[str, StoreEngine]
"""A task's stores, by name."""


def apply_to_each(stores: Stores, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
    """`TaskStorage.apply`: engine by engine, since no step can be atomic over several."""
    for name in {**batches, **offsets}:
        stores[name].write(batches.get(name, {}), offsets.get(name))
