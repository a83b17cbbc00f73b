"""A store in an engine of its own: writes, emptying, filling.

*Guarantees*: a write is cut into `steps` (a write holds the GIL), the last one together with the changelog offset, so
that a replay repairs a write that breaks off. What no replay could repair is written in one step of any size, a store
without changelog or of a kind that is `whole`: only `statestore_uncommitted_max_bytes`, which asks for a commit, bounds
the step.
*Assumes*: one thread at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from milestones.common.state.engine import Batch, Engine, Namespace, Span
from milestones.common.state.spec import StoreSpec
from milestones.common.state.steps import steps
from milestones.common.state.stores.kinds import kind_of


class StoreEngine:
    """A store's engine, with its only namespace, which has the store's name. `offset`: the changelog offset up to which
    the store is complete, as of the last write: the engine is asked for it once, when it is opened."""

    spec: StoreSpec
    engine: Engine

    def __init__(self, spec: StoreSpec, engine: Engine) -> None:
        self.spec, self.engine = spec, engine
        self.namespace: Namespace = engine.open(spec.name)
        self.offset = self.namespace.offset()
        self._in_steps = spec.logged and not kind_of(spec).whole

    def write(self, batch: Batch, offset: int | None) -> None:
        """Write committed entries, up to the changelog offset `offset` (exclusive)."""
        name, apply = self.spec.name, self.engine.apply
        offsets = {} if offset is None else {name: offset}
        if not (batch or offsets):
            return
        *first, last = steps(batch) if self._in_steps else (batch,)
        for step in first:
            apply({name: step}, {})
        apply({name: last}, offsets)
        if offset is not None:
            self.offset = offset

    def expire(self, spans: Collection[Span]) -> None:
        """Delete what no reader asks for any more."""
        self.engine.expire(self.spec.name, spans)

    def empty(self) -> Namespace:
        """Drop the namespace, and return a new one, without entries, at offset None."""
        self.offset = None
        self.engine.drop(self.spec.name)
        self.namespace = self.engine.open(self.spec.name)
        return self.namespace

    def ingest(self, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        """Take sorted table files in, in steps. `prefix`: what their keys have in front of the store's."""
        from milestones.common.state.engines.sst import taken_in  # the library, for no store in memory

        return taken_in(self.engine, self.spec.name, files, prefix)


Stores = Mapping[str, StoreEngine]
"""A task's stores, by name."""


def apply_to_each(stores: Stores, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
    """`TaskStorage.apply`: engine by engine, since no step can be atomic over several."""
    for name in {**batches, **offsets}:
        stores[name].write(batches.get(name, {}), offsets.get(name))
