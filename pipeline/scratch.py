"""A temporary store on this machine's disk, which is filled from a changelog.

Changelog records become rows by the runtime's own code (`Layout.restored`), in the same engine. So the store has the
same rows as after a restoration.

*Guarantees*: all files are removed at the end of the `with`. A snapshot's files are linked, whether or not keys begin
with the partition.
*Assumes*: the local disk has enough room.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from milestones.common.records import TopicPartition
from milestones.common.state.engine import Namespace, Span
from milestones.common.state.engines.rocks import MIB, RocksSettings
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.common.state.engines.sst import taken_in
from milestones.common.state.snapshots.repository import LocalSnapshot
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import layout_of
from milestones.common.task.gone_rows import without_gone
from milestones.common.windowed import FOREVER
from milestones.m6_state_manager.ranges import RangeNamespace, prefix_of, prefixed
from milestones.pipeline.reading import RecordsDeletedError, beginning, read

log: Final = logging.getLogger(__name__)

SETTINGS = RocksSettings(block_cache_bytes=16 * MIB, write_buffer_bytes=32 * MIB)


class ScratchStore:
    """One store partition in `directory`. Its keys have the format of the snapshot from which it was filled. Rows
    expire by `committed_time` (ms): later times in the changelog don't count.
    """

    def __init__(self, directory: Path, spec: StoreSpec, committed_time: int = FOREVER) -> None:
        self._spec, self._store, self._layout = spec, spec.name, layout_of(spec)
        self._committed_time = committed_time
        self._engine = RocksDictEngines(SETTINGS).open(directory)
        self._namespace: Namespace = self._engine.open(spec.name)
        self._prefix = b""

    def __enter__(self) -> ScratchStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def ingest(self, snapshot: LocalSnapshot) -> None:
        """Begin with a snapshot's files. `StateCorruptError`."""
        manifest = snapshot.manifest
        taken_away = manifest.key_prefix
        if taken_away == prefix_of(manifest.partition):
            family = self._engine.open(self._store)
            self._namespace = RangeNamespace(self._store, family, manifest.partition, family.offset)
            self._prefix, taken_away = taken_away, b""
        for _ in taken_in(self._engine, self._store, snapshot.files, taken_away):
            pass
        if manifest.gone:
            self._expire(manifest.gone)

    def empty(self) -> None:
        self._engine.drop(self._store)
        self._namespace, self._prefix = self._engine.open(self._store), b""
        self._layout = layout_of(self._spec)  # the old layout has seen rows that are gone

    def fold(self, consumer: Mapping[str, Any], changelog: TopicPartition, first: int, end: int) -> int:
        """Read the changelog's committed records with first <= offset < end into the store, and return their number. If
        Kafka deletes the first of them in the meantime, as for expired windows, reading begins anew at the new
        beginning of the changelog, as in a restoration. `consumer`: a restore consumer's settings. Errors: as in
        `read`.
        """
        while True:
            try:
                return self._fold(consumer, changelog, first, end)
            except RecordsDeletedError:
                before, first = first, beginning(consumer, changelog)
                if first <= before:
                    raise
                log.info("%s begins at offset %d now, not at %d: it is read from there", changelog, first, before)
                self.empty()

    def _fold(self, consumer: Mapping[str, Any], changelog: TopicPartition, first: int, end: int) -> int:
        records, expired = 0, list[Span]()
        for batch in read(consumer, changelog, first, end):
            entries = self._layout.restored(batch, self._namespace)
            gone = self._layout.expired(min(self._layout.restored_time, self._committed_time))
            self._engine.apply({self._store: prefixed(without_gone(entries, gone), self._prefix)}, {})
            if gone != expired:
                self._expire(gone)
                expired = gone
            records += len(batch)
        return records

    def _expire(self, spans: Iterable[Span]) -> None:
        prefix = self._prefix
        self._engine.expire(self._store, [(prefix + first, prefix + beyond) for first, beyond in spans])

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries in the order of their keys."""
        return self._namespace.scan(None, None)
