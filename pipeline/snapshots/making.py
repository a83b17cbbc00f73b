"""One snapshot, made where Spark runs its task.

    newest snapshot, if it is fit --ingest--> `ScratchStore` <--fold-- the changelog's tail
                                                   |
                                                   +--in the order of keys--> table files, Parquet --> the repository

*Guarantees*: an attempt that fails, or runs beside another one, leaves nothing that a reader takes for a snapshot.
*Assumes*: room on the local disk for the store, twice.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from milestones.common.clock import SystemClock
from milestones.common.errors import StateError
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.snapshots.garbage import prune
from milestones.common.state.snapshots.repository import LocalSnapshot, SnapshotRepository, described
from milestones.common.state.snapshots.snapshot import SPARK, SnapshotManifest, new_id
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import kind_of
from milestones.instance.application import Application
from milestones.pipeline.hosting.payload import Payload, unpack
from milestones.pipeline.scratch import ScratchStore
from milestones.pipeline.snapshots.parquet import write_parquet

if TYPE_CHECKING:
    from milestones.pipeline.snapshots.jobs import SnapshotJob

log: Final = logging.getLogger(__name__)


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
    repository = job.repository()
    newest = _newest(repository, job)
    if newest is not None and newest.offset == job.end and _fresh(newest, job) and job.parquet is None:
        return MadeSnapshot(newest, repository.describe(newest), 0, newest.offset, time.monotonic() - began, new=False)
    with TemporaryDirectory(prefix="milestones-snapshot-") as place:
        directory = Path(place)
        with ScratchStore(directory / "store", job.spec, job.committed_time) as scratch:
            base = None if newest is None else _begin_with(newest, repository, scratch, directory)
            records = scratch.fold(job.consumer, job.changelog, job.first if base is None else base, job.end)
            snapshot = _write(scratch, job, directory / "files", _generation(repository, job))
            if job.parquet is not None:
                write_parquet(_spec(payload, job), job.changelog, scratch.entries(), job.parquet, job.options)
        manifest = repository.publish(snapshot)
    _prune(repository, job)
    return MadeSnapshot(manifest, repository.describe(manifest), records, base, time.monotonic() - began)


def _prune(repository: SnapshotRepository, job: SnapshotJob) -> None:
    """Remove old snapshots, as only Spark does it where only Spark makes them."""
    try:
        prune(repository, job.changelog, SystemClock(), changelog_id=job.changelog_id)
    except StateError as error:
        log.warning("old snapshots of %s can't be removed: %s", job.changelog, error)


def _spec(payload: Payload, job: SnapshotJob) -> StoreSpec:
    """With the serdes that the user has written."""
    application = Application.of(*unpack(payload))
    return next(spec for spec in application.subtopology(job.task.subtopology).stores if spec.name == job.spec.name)


def _newest(repository: SnapshotRepository, job: SnapshotJob) -> SnapshotManifest | None:
    """The snapshot to build on. Where nothing was written since, it doesn't matter how old it is."""
    try:
        newest = repository.newest(
            job.changelog, job.spec.name, changelog_id=job.changelog_id, now_ms=job.created_ms
        )
    except StateError as error:
        log.warning("%s is read from its beginning: %s", job.changelog, error)
        return None
    if newest is None:
        return None
    now_ms = job.created_ms if newest.offset < job.end else newest.created_ms
    why = newest.unfit(job.spec, now_ms) or newest.misplaced(job.changelog_id, job.first, job.end)
    if why is not None:
        log.warning("%s is read from its beginning, its snapshot is no use: %s", job.changelog, why)
    return newest if why is None else None


def _generation(repository: SnapshotRepository, job: SnapshotJob) -> int:
    """Spark is no member of the group: the generation of the newest snapshot that counts, if one does that a member has
    made, of that one. So the generations of a group that was deleted don't outlive its members' snapshots."""
    found = repository.counting(
        job.changelog, job.spec.name, changelog_id=job.changelog_id, now_ms=job.created_ms
    )
    newest = next(found, None)
    if newest is None:
        return 0
    return next((one.generation for one in chain((newest,), found) if one.by_member), newest.generation)


def _fresh(newest: SnapshotManifest, job: SnapshotJob) -> bool:
    """Half of its time at least is left."""
    until = newest.usable_until_ms
    return until is None or 2 * job.created_ms <= newest.created_ms + until


def _begin_with(
    manifest: SnapshotManifest, repository: SnapshotRepository, scratch: ScratchStore, directory: Path
) -> int | None:
    """Take a snapshot in; its offset, or None when it can't be read."""
    try:
        scratch.ingest(repository.fetch(manifest, directory))
        return manifest.offset
    except StateError as error:
        log.warning("%s-%d is read from its beginning: %s", manifest.changelog, manifest.partition, error)
        scratch.empty()
        return None


def _write(scratch: ScratchStore, job: SnapshotJob, directory: Path, generation: int) -> LocalSnapshot:
    """The store's content as table files: a base."""
    directory.mkdir()
    writer, prefix = SstWriter(directory), job.key_prefix
    writer.write((prefix + key, value) for key, value in scratch.entries())
    manifest = SnapshotManifest(
        id=new_id(),
        application_id=job.application_id,
        store=job.spec.name,
        kind=job.spec.kind,
        layout=kind_of(job.spec).version,
        changelog=job.changelog.topic,
        changelog_id=job.changelog_id,
        partition=job.changelog.partition,
        offset=job.end,
        created_ms=job.created_ms,
        usable_until_ms=job.usable_until_ms,
        files=tuple(described(path, entries) for path, entries in writer.files.items()),
        made_by=SPARK,
        arrangement=kind_of(job.spec).arrangement(job.spec),
        generation=generation,
        key_prefix=prefix,
    )
    return LocalSnapshot(manifest, directory)
