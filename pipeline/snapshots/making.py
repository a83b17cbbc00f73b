"""Makes one snapshot, inside a Spark task.

    newest snapshot, if it is fit --ingest--> `ScratchStore` <--fold-- the changelog's tail
                                                   |
                                                   +--in the order of keys--> table files, Parquet --> the repository

*Guarantees*: if an attempt fails, or runs at the same time as another one, readers see no incomplete snapshot.
*Assumes*: the local disk has room for twice the size of the store.
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
    """`records`: the number of changelog records that were read. `base`: the offset of the snapshot from which it was
    made, or None. `location`: the place of the snapshot. `new`: False if the existing snapshot is still valid.
    """

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
    """Remove old snapshots. If only Spark makes snapshots, no other process removes them."""
    try:
        prune(repository, job.changelog, SystemClock(), changelog_id=job.changelog_id)
    except StateError as error:
        log.warning("old snapshots of %s can't be removed: %s", job.changelog, error)


def _spec(payload: Payload, job: SnapshotJob) -> StoreSpec:
    """Return the store's spec, with serdes that the user has written."""
    application = Application.of(*unpack(payload))
    return next(spec for spec in application.subtopology(job.task.subtopology).stores if spec.name == job.spec.name)


def _newest(repository: SnapshotRepository, job: SnapshotJob) -> SnapshotManifest | None:
    """Return the newest usable snapshot, from which the new one is made. Its age doesn't matter if the changelog has no
    later records.
    """
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
    """Return the generation for a new snapshot. Spark isn't a member of the group, so the generation is copied from the
    newest valid snapshot that a member has made, or else from the newest valid one. So after the group was deleted, its
    old generations are used only until its members' snapshots are out of date.
    """
    found = repository.counting(
        job.changelog, job.spec.name, changelog_id=job.changelog_id, now_ms=job.created_ms
    )
    newest = next(found, None)
    if newest is None:
        return 0
    return next((one.generation for one in chain((newest,), found) if one.by_member), newest.generation)


def _fresh(newest: SnapshotManifest, job: SnapshotJob) -> bool:
    """True if at least half of the snapshot's time of validity is left."""
    until = newest.usable_until_ms
    return until is None or 2 * job.created_ms <= newest.created_ms + until


def _begin_with(
    manifest: SnapshotManifest, repository: SnapshotRepository, scratch: ScratchStore, directory: Path
) -> int | None:
    """Fill the store from a snapshot. Returns the snapshot's offset, or None if it can't be read."""
    try:
        scratch.ingest(repository.fetch(manifest, directory))
        return manifest.offset
    except StateError as error:
        log.warning("%s-%d is read from its beginning: %s", manifest.changelog, manifest.partition, error)
        scratch.empty()
        return None


def _write(scratch: ScratchStore, job: SnapshotJob, directory: Path, generation: int) -> LocalSnapshot:
    """Write the store's entries as table files of a full snapshot."""
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
