"""The helper process that makes snapshots from a checkpoint. This process does all work that grows with the number of
entries.

    checkpoint, read-only --scan of a range--> sorted table files: a base  --publish, prune--> snapshot_url
                          --get per changed key--> a table file of changed keys: a delta

`python -m milestones.m6_state_manager.snapshots.process` reads its job from its input.

*Guarantees*: the keys in a snapshot begin with the partition, so that a database of m6 can link its files. Whenever the
process ends, files that aren't published are never taken for a snapshot. The process ends with its parent. No snapshot
is made if there is one of the same content. A member of an older generation makes none if it may have records that the
changelog lacks. A snapshot that can't be read doesn't count.
*Assumes*: no other process uses the checkpoint.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import StateError
from milestones.common.records import TopicPartition
from milestones.common.state.disk import make_directory
from milestones.common.state.engines.rocks import MIB, RocksSettings
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.common.state.engines.sst import Entry, SstWriter
from milestones.common.state.snapshots.garbage import prune
from milestones.common.state.snapshots.objects import ObjectStoreError
from milestones.common.state.snapshots.repository import (
    LocalSnapshot,
    SnapshotGoneError,
    SnapshotRepository,
    described,
)
from milestones.common.state.snapshots.snapshot import INSTANCE, SnapshotManifest, new_id
from milestones.common.testing.faults import reach
from milestones.m6_state_manager.ranges import prefix_of, span_of
from milestones.m6_state_manager.snapshots.jobs import NICE, RESULTS, CheckpointJob, PartitionJob, SnapshotResult
from milestones.m6_state_manager.snapshots.schedule import fresh
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

if TYPE_CHECKING:
    from milestones.m6_state_manager.range_row import RangeRow

log: Final = logging.getLogger(__name__)

SETTINGS: Final = RocksSettings(block_cache_bytes=16 * MIB)

Draft = Callable[..., SnapshotManifest]
"""Makes the manifest of a store's snapshot, from its table files."""


class NotMade(Exception):
    """No new snapshot is made, and the message says why. `there`: a snapshot that has the same content, or more."""

    def __init__(self, why: str, there: SnapshotManifest | None = None) -> None:
        super().__init__(why)
        self.there = there


class Maker:
    """Makes the snapshots of one job."""

    def __init__(self, job: CheckpointJob, repository: SnapshotRepository, clock: Clock) -> None:
        self._job, self._repository, self._clock = job, repository, clock

    def run(self, told: Callable[[SnapshotResult], object]) -> None:
        """Make all snapshots of the job, and report the result of each to `told`. Raises `StateError` when the
        checkpoint can't be opened."""
        engines = RocksDictEngines(SETTINGS, read_only=True)
        database = SubtopologyEngine(self._job.subtopology, self._job.directory, engines)
        away: str | None = None
        try:
            for store in self._job.stores:
                if away is not None:
                    told(SnapshotResult(*store.place, None, away, wrong=True))
                    continue
                try:
                    told(SnapshotResult(*store.place, self._make(store, database)))
                except NotMade as reason:
                    told(SnapshotResult(*store.place, None, str(reason), there=reason.there))
                except StateError as error:
                    away = str(error) if isinstance(error, ObjectStoreError) else None
                    told(SnapshotResult(*store.place, None, str(error), wrong=True))
        finally:
            database.close()

    def _make(self, store: PartitionJob, database: SubtopologyEngine) -> SnapshotManifest:
        """Make and publish one snapshot. Raises `NotMade`, `StateError`."""
        row = database.rows.get(store.task.partition)
        offset = None if row is None else row.offsets.get(store.store)
        if row is None or offset is None or store.store not in database.stores():
            raise NotMade("the store was empty, or not restored yet, at that moment")
        generation = self._look(store, offset)
        directory = self._job.directory / f"{store.task}-{store.store}"
        try:
            manifest = self._published(store, partial(self._draft, row, offset, generation), database, directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        self._prune(store)
        return manifest

    def _published(
        self, store: PartitionJob, draft: Draft, database: SubtopologyEngine, directory: Path
    ) -> SnapshotManifest:
        """Publish a delta if the snapshot before it is still there, else a base: other members may have removed this
        member's snapshots, once they had made newer ones. Raises `StateError`."""
        try:
            return self._repository.publish(self._written(store, draft, database, directory))
        except SnapshotGoneError as error:
            log.info("a base is made in place of a delta: %s", error)
            base = replace(store, on=None)
            return self._repository.publish(self._written(base, draft, database, directory))

    def _look(self, store: PartitionJob, offset: int) -> int:
        """Look at the newest snapshot in the repository, and return the generation for the new one. If no new one is
        needed, prune. Raises `NotMade`, `ObjectStoreError`."""
        now_ms, own = self._clock.wall_ms(), self._job.generation
        newest = self._newest(store, now_ms)
        if newest is None or newest.of_another_topic(store.changelog_id) or newest.expired(now_ms):
            return own  # a snapshot that can't be used doesn't count: the group's generations may have begun anew
        generation = own
        if newest.generation > own:
            if self._job.exact and offset >= newest.offset:
                generation = newest.generation  # at least as high, so that readers find the new one as the newest
            elif (made_in := self._generation(store, now_ms)) > own:
                raise NotMade(f"a member of generation {made_in} has made one, this is one of {own}")
        if not fresh(newest, now_ms):
            return generation
        if newest.offset >= offset:
            self._prune(store)
            raise NotMade(f"there is one at offset {newest.offset}, this would be one at {offset}", newest)
        if store.since_ms is not None and newest.created_ms > store.since_ms:
            raise NotMade("another instance has made one lately")
        return generation

    def _generation(self, store: PartitionJob, now_ms: int) -> int:
        """Return the generation of the newest snapshot that counts and that a member has made. A snapshot of Spark has
        a generation that Spark was given; its group may be gone. Raises `ObjectStoreError`."""
        found = self._repository.counting(
            store.changelog, store.store, changelog_id=store.changelog_id, now_ms=now_ms
        )
        return next((one.generation for one in found if one.by_member), 0)

    def _newest(self, store: PartitionJob, now_ms: int) -> SnapshotManifest | None:
        """Return the newest snapshot that can be read; None if there is none. Raises `ObjectStoreError`."""
        try:
            newest = self._repository.newest(
                store.changelog, store.store, changelog_id=store.changelog_id, now_ms=now_ms
            )
            if newest is not None:
                self._repository.must_have_keys(newest)
        except ObjectStoreError:
            raise
        except StateError as error:
            log.warning("a snapshot is passed over, and another one is made: %s", error)
            return None
        return newest

    def _written(
        self, store: PartitionJob, draft: Draft, database: SubtopologyEngine, directory: Path
    ) -> LocalSnapshot:
        """Write the files of a snapshot to the local disk: a delta, if the snapshot before it is known and can take one
        more delta, else a base."""
        if store.on is not None:
            files = _files(directory / "delta", _changed(store, database))
            delta = draft(store, files, gone=store.gone)
            if store.on.takes_delta(delta.size):
                return LocalSnapshot(store.on.with_delta(delta), files.directory)
            reach("snapshot.folding")
            shutil.rmtree(files.directory)
        files = _files(directory / "base", database.open_store(store.store).scan(*span_of(store.task.partition)))
        return LocalSnapshot(draft(store, files), files.directory)

    def _draft(
        self, row: RangeRow, offset: int, generation: int, store: PartitionJob, files: _Files, **fields: Any
    ) -> SnapshotManifest:
        return SnapshotManifest(
            id=new_id(),
            application_id=self._job.application_id,
            store=store.store,
            kind=store.kind,
            layout=store.layout,
            changelog=store.changelog.topic,
            changelog_id=store.changelog_id,
            partition=store.changelog.partition,
            offset=offset,
            created_ms=self._job.created_ms,
            usable_until_ms=store.usable_until_ms,
            files=files.described(),
            made_by=INSTANCE,
            arrangement=store.arrangement,
            generation=generation,
            commit_number=row.commit or None if store.leads else None,
            positions=_partitions(row.positions) if store.leads else {},
            stream_times=_partitions(row.stream_times) if store.leads else {},
            key_prefix=prefix_of(store.task.partition),
            **fields,
        )

    def _prune(self, store: PartitionJob) -> None:
        """Remove snapshots that no reader needs. Only the owner of a partition may do so."""
        try:
            prune(self._repository, store.changelog, self._clock, changelog_id=store.changelog_id)
        except StateError as error:
            log.warning("old snapshots of %s can't be removed: %s", store.changelog, error)


class _Files:
    """Sorted table files that were written to `directory`."""

    def __init__(self, directory: Path, writer: SstWriter) -> None:
        self.directory, self._writer = directory, writer

    def described(self) -> Any:
        writer = self._writer
        return tuple(described(path, count, writer.deletions[path]) for path, count in writer.files.items())


def _files(directory: Path, entries: Iterator[Entry]) -> _Files:
    make_directory(directory)
    writer = SstWriter(directory)
    writer.write(entries)
    return _Files(directory, writer)


def _changed(store: PartitionJob, database: SubtopologyEngine) -> Iterator[Entry]:
    """Yield the changed keys, with their values in the checkpoint."""
    get, prefix = database.open_store(store.store).get, prefix_of(store.task.partition)
    for key in sorted(store.keys):
        yield prefix + key, get(prefix + key)


def _partitions(written: Any) -> dict[TopicPartition, int]:
    found = {}
    for name, number in written.items():
        topic, _, partition = name.rpartition("-")
        found[TopicPartition(topic, int(partition))] = number
    return found


def _end_with_parent() -> None:
    """End this process when its input is closed, or its parent is gone. The input is read without a buffer: if a thread
    holds the lock of a buffer when the interpreter ends, the interpreter aborts."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def main() -> int:
    """Make the snapshots. Returns the exit code of the process."""
    os.nice(NICE)
    job = CheckpointJob.read(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    repository = SnapshotRepository(
        job.url, job.application_id, options=job.options, encryption_key=job.encryption_key, timeout_ms=job.timeout_ms
    )
    try:
        with (job.directory / RESULTS).open("ab", buffering=0) as opened:
            Maker(job, repository, SystemClock()).run(lambda result: opened.write(result.line()))
    except StateError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(message)s")
    sys.exit(main())
