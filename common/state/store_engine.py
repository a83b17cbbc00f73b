"""Stores that have an engine each (all stages before M6): how they are written, emptied and filled.

*Guarantees*: a write is cut into `steps`, because each write holds the GIL. The last step also has the changelog
offset, so that a replay repairs a write that breaks off. Two kinds of stores can't be repaired by a replay: those
without changelog, and those whose kind is `whole`. Such stores are written in one step of any size. Only
`statestore_uncommitted_max_bytes` bounds that step, as it makes commits come early.
*Assumes*: one thread at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from milestones.common.state.engine import Batch, Engine, Namespace, Span
from milestones.common.state.spec import StoreSpec
from milestones.common.state.steps import steps
from milestones.common.state.storage import CommitMade
from milestones.common.state.stores.kinds import kind_of


class StoreEngine:
    """A store's engine, with its only namespace, which has the store's name.

    `offset`: the changelog offset up to which (exclusive) the store is complete after the last write. The offset is
    read from the engine once, when the engine is opened."""

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
        """Delete the keys in `spans`, which no reader asks for any more."""
        self.engine.expire(self.spec.name, spans)

    def empty(self) -> Namespace:
        """Drop the namespace. Returns a new one that has no entries and the offset None."""
        self.offset = None
        self.engine.drop(self.spec.name)
        self.namespace = self.engine.open(self.spec.name)
        return self.namespace

    def ingest(self, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        """Put the entries of sorted table files into the store, one step per item of the iterator. `prefix`: the bytes
        that each key in the files has in front of the store's key."""
        from milestones.common.state.engines.sst import taken_in  # imports a library that memory stores don't need

        return taken_in(self.engine, self.spec.name, files, prefix)


class EnginePerStore:
    """The methods of a `TaskStorage` in which each store has an engine of its own, on disk or in memory."""

    store_engine: ClassVar[type[StoreEngine]] = StoreEngine
    stores: dict[str, StoreEngine]

    def namespace(self, store: str) -> Namespace:
        return self.stores[store].namespace

    def offsets(self) -> dict[str, int | None]:
        return {name: store.offset for name, store in self.stores.items()}

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        """Write store by store. No write can be atomic over several engines."""
        for name in {**batches, **offsets}:
            self.stores[name].write(batches.get(name, {}), offsets.get(name))

    def write_due_ms(self) -> int | None:
        return None

    def write(self) -> None:
        """Do nothing, because commits never wait in this storage."""

    def note(self, commit: CommitMade) -> None:
        """Do nothing, because this storage keeps no commit numbers."""

    def commit_number(self) -> int | None:
        return None

    def expire(self, store: str, spans: Collection[Span]) -> None:
        self.stores[store].expire(spans)

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        return self.stores[store].empty()

    def ingest(self, store: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        return self.stores[store].ingest(files, prefix)
