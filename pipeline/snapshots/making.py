"""One snapshot, made where Spark runs its task.

    newest snapshot, if it is fit --ingest--> scratch engine <--fold-- the changelog's tail
                                                   |
                                                   +--in the order of keys--> table files, Parquet --> the repository

The fold is the runtime's own (`changelog.restored`), over the engine that restoration fills: a snapshot is what a
restoration would give.

*Guarantees*: an attempt that fails, or runs beside another one, leaves nothing that a reader takes for a snapshot.
*Assumes*: room on the local disk for the store, twice.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from milestones.application import Application
from milestones.common.errors import StateError
from milestones.common.state.changelog import restored
from milestones.common.state.engine import Engine, Namespace
from milestones.common.state.manifest import LAYOUTS
from milestones.common.state.repository import LocalSnapshot, SnapshotRepository, described
from milestones.common.state.rocks import MIB, RocksSettings
from milestones.common.state.rocksdict_engine import RocksDictEngines
from milestones.common.state.snapshot import SnapshotManifest
from milestones.common.state.spec import StoreSpec
from milestones.common.state.sst import SstWriter
from milestones.pipeline.hosting.payload import Payload, unpack
from milestones.pipeline.reading import read
from milestones.pipeline.snapshots.parquet import write_parquet

if TYPE_CHECKING:
    from confluent_kafka import Message

    from milestones.pipeline.snapshots.jobs import SnapshotJob

log = logging.getLogger(__name__)

SETTINGS = RocksSettings(block_cache_bytes=16 * MIB, write_buffer_bytes=32 * MIB)

@dataclass(frozen=True)
class MadeSnapshot:
    """`records`: of the changelog that were read; `base`: the offset of the snapshot that it was built on, None for
    none; `location`: where it lies; `new`: False when the one that is there is still good."""

    manifest: SnapshotManifest
    location: str
    records: int
    base: int | None
    seconds: float
    new: bool = True


def make(payload: Payload, job: SnapshotJob) -> MadeSnapshot:
    """Make the snapshot that `job` describes and publish it. `StateError`, `MilestonesError`."""
    began = time.monotonic()
    repository = SnapshotRepository(job.url, job.application_id)
    newest = _newest(repository, job)
    if newest is not None and newest.offset == job.end and _fresh(newest, job) and job.parquet is None:
        return MadeSnapshot(newest, repository.describe(newest), 0, newest.offset, time.monotonic() - began, new=False)
    with TemporaryDirectory(prefix="milestones-snapshot-") as directory, _Scratch(Path(directory), job) as scratch:
        base = None if newest is None else scratch.begin_with(repository, newest)
        first = job.first if base is None else base
        records = sum(scratch.fold(batch) for batch in read(job.consumer, job.changelog, first, job.end))
        snapshot = scratch.write()
        if job.parquet is not None:
            write_parquet(_spec(payload, job), job.changelog, scratch.entries(), job.parquet)
        repository.publish(snapshot)
    return MadeSnapshot(
        snapshot.manifest, repository.describe(snapshot.manifest), records, base, time.monotonic() - began
    )


def _spec(payload: Payload, job: SnapshotJob) -> StoreSpec:
    """With the serdes that the user has written."""
    application = Application.of(*unpack(payload))
    return next(spec for spec in application.subtopology(job.task.subtopology).stores if spec.name == job.store)


def _newest(repository: SnapshotRepository, job: SnapshotJob) -> SnapshotManifest | None:
    """The snapshot to build on. Where nothing was written since, it doesn't matter how old it is."""
    try:
        newest = repository.newest(job.changelog)
    except StateError as error:
        log.warning("%s is read from its beginning: %s", job.changelog, error)
        return None
    if newest is None:
        return None
    now_ms = job.created_ms if newest.offset < job.end else newest.created_ms
    why = newest.unfit(job.kind, now_ms) or newest.misplaced(job.changelog_id, job.first, job.end)
    if why is not None:
        log.warning("%s is read from its beginning, its snapshot is no use: %s", job.changelog, why)
    return newest if why is None else None


def _fresh(newest: SnapshotManifest, job: SnapshotJob) -> bool:
    """Half of its time at least is left."""
    until = newest.usable_until_ms
    return until is None or 2 * job.created_ms <= newest.created_ms + until


class _Scratch:
    """A store on this machine's disk for as long as its snapshot is being made."""

    def __init__(self, directory: Path, job: SnapshotJob) -> None:
        self._directory, self._job = directory, job
        self._engine: Engine = RocksDictEngines(SETTINGS).open(directory / "store", job.store)
        self._namespace: Namespace = self._engine.open(job.store)

    def __enter__(self) -> _Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def begin_with(self, repository: SnapshotRepository, manifest: SnapshotManifest) -> int | None:
        """Take a snapshot in; its offset, or None when it can't be read."""
        name = self._job.store
        try:
            snapshot = repository.fetch(manifest, self._directory)
            for _ in self._engine.ingest(name, snapshot.files):
                pass
            return manifest.offset
        except StateError as error:
            log.warning("%s is read from its beginning: %s", self._job.changelog, error)
            self._engine.drop(name)
            self._namespace = self._engine.open(name)
            return None

    def fold(self, batch: list[Message]) -> int:
        """Changelog records into the store; how many."""
        self._engine.apply({self._job.store: restored(self._job.kind, batch)}, {})
        return len(batch)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """The store's content in the order of its keys."""
        return self._namespace.scan(None, None)

    def write(self) -> LocalSnapshot:
        """The store's content as table files."""
        job, directory = self._job, self._directory / "files"
        directory.mkdir()
        writer = SstWriter(directory)
        writer.write(self.entries())
        files = tuple(described(path, entries) for path, entries in writer.files.items())
        manifest = SnapshotManifest(
            id=uuid.uuid4().hex[:12],
            application_id=job.application_id,
            store=job.store,
            kind=job.kind,
            layout=LAYOUTS[job.kind],
            changelog=job.changelog.topic,
            changelog_id=job.changelog_id,
            partition=job.changelog.partition,
            offset=job.end,
            created_ms=job.created_ms,
            usable_until_ms=job.usable_until_ms,
            files=files,
        )
        return LocalSnapshot(manifest, directory)
